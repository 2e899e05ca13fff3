//! The statements of the pipeline: SQL files with a storage to fill in.

use pgrx::pg_sys::{self, Oid};
use std::rc::Rc;

/// A storage, and where it matters the partition that ready rows go to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// Quoted name of the schema with lanes and jobs.
    pub storage: Rc<str>,
    /// Quoted name of the schema with unique claims and queue settings.
    pub shared: &'static str,
    /// Ring slot whose partition is written to; `None` for the partitioned parent, or where it does not matter.
    pub slot: Option<i32>,
    /// The ring that the statement is about; empty where it does not matter.
    pub ring: &'static str,
    /// The next value of the sequence that a head names, as an expression.
    pub position: &'static str,
}

impl Target {
    /// For statements whose text names all their tables.
    pub fn none() -> Self {
        Self { storage: "pg_catalog".into(), shared: "pg_catalog", slot: None, ring: "", position: AWAS_POSITION }
    }
}

/// Asks the function of awa that its own prune asks.
pub const AWAS_POSITION: &str = "{storage}.sequence_next_value(head.seq_name)";

/// Looks it up among the positions that were read before (`positions`), and runs nobody's code.
pub const OWN_POSITION: &str = "(SELECT position.next FROM awa_ingest_positions AS position
    WHERE position.sequence = to_regclass('{storage}.' || quote_ident(head.seq_name)))";

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident $file:literal [$($argument:ident),*];)*) => {
        /// A statement, by the file with its text.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Statement {
            $($(#[$doc])* $name,)*
        }

        impl Statement {
            fn template(self) -> &'static str {
                match self {
                    $(Self::$name => include_str!(concat!("../sql/statements/", $file, ".sql")),)*
                }
            }

            /// Types of the arguments.
            pub fn arguments(self) -> &'static [Oid] {
                match self {
                    $(Self::$name => &[$(pg_sys::$argument),*],)*
                }
            }
        }
    };
}

statements! {
    /// Active storage schema and version of an awa schema.
    Engine "engine" [];
    /// The same without the version.
    EngineAlone "engine_alone" [];
    /// Version alone, of a schema too old for the rest.
    Version "version" [];
    /// First difference to the known shape.
    Shape "shape" [TEXTOID, BOOLOID];
    /// Shards of a queue, and whether it has stripes.
    Queue "queue" [TEXTOID];
    /// Stripes of a queue and their shards.
    Stripes "stripes" [TEXTOID, INT4OID];
    /// Lanes that contradict the stripe setting.
    StripeMismatch "stripe_mismatch" [TEXTOID];
    /// Takes unique keys.
    Claim "claim" [];
    /// Takes one unique key.
    ClaimOne "claim_one" [BYTEAOID, INT8OID];
    /// The job that holds a key.
    Holder "holder" [BYTEAOID];
    /// Keys let go while they were being claimed.
    Unheld "unheld" [];
    /// Foreign tables that a command made or changed.
    CreatedForeignTables "created_foreign_tables" [];
    /// Jobs whose keys others hold.
    Losers "losers" [XIDOID];
    /// The first of them.
    FirstLoser "first_loser" [XIDOID];
    /// Sequence of a lane.
    Lane "lane" [TEXTOID, INT2OID, INT2OID];
    /// Creates a lane as the storage's owner.
    Provision "provision" [TEXTOID, INT2OID, INT2OID];
    /// Current ring position.
    Ring "ring" [];
    /// Writes ready rows.
    Ready "ready" [INT4OID, INT8OID, INT8ARRAYOID, TIMESTAMPTZOID];
    /// Writes ready segments.
    Segments "segments" [INT4OID, INT8OID, INT8ARRAYOID, TIMESTAMPTZOID];
    /// Writes deferred jobs.
    Deferred "deferred" [TIMESTAMPTZOID];
    /// Writes available jobs of the canonical engine.
    CanonicalHot "canonical_hot" [TIMESTAMPTZOID];
    /// Writes its deferred jobs.
    CanonicalScheduled "canonical_scheduled" [];
    /// Takes a key, or raises.
    ClaimFirst "claim_first" [BYTEAOID, INT8OID];
    /// Writes one ready row.
    ReadyJob "ready_job" [INT4OID, INT8OID, INT8OID, TEXTOID, TEXTOID, JSONBOID, INT2OID, INT2OID, INT8OID, INT2OID, TIMESTAMPTZOID,
        TIMESTAMPTZOID, BYTEAOID, TEXTOID, JSONBOID];
    /// Writes its segment.
    SegmentOfOne "segment_of_one" [INT4OID, INT8OID, TEXTOID, INT2OID, INT2OID, INT8OID, TIMESTAMPTZOID];
    /// Writes one deferred job.
    DeferredJob "deferred_job" [INT8OID, TEXTOID, TEXTOID, JSONBOID, TEXTOID, INT2OID, INT2OID, TIMESTAMPTZOID, TIMESTAMPTZOID,
        BYTEAOID, TEXTOID, JSONBOID];
    /// Makes a payload of odd parts.
    Payload "payload" [JSONBOID, TEXTARRAYOID];
    /// Writes one available job of the canonical engine.
    CanonicalHotJob "canonical_hot_job" [TEXTOID, TEXTOID, JSONBOID, TEXTOID, INT2OID, INT2OID, TIMESTAMPTZOID, JSONBOID, TEXTARRAYOID,
        BYTEAOID, BITOID];
    /// Writes one deferred job of the canonical engine.
    CanonicalScheduledJob "canonical_scheduled_job" [TEXTOID, TEXTOID, JSONBOID, TEXTOID, INT2OID, INT2OID, TIMESTAMPTZOID, JSONBOID,
        TEXTARRAYOID, BYTEAOID, BITOID];
    /// awa.insert_job_compat as it stands.
    CompatFunction "compat_function" [];
    /// Whether the caller owns schema awa.
    OwnsAwa "owns_awa" [];
    /// What it was before it was replaced.
    Original "original" [];
    /// Saves that.
    SaveOriginal "save_original" [TEXTOID];
    /// Forgets it.
    ForgetOriginal "forget_original" [];
    /// Owner of the extension.
    ExtensionOwner "extension_owner" [];
    /// Spooled jobs as rows of awa.jobs.
    SpooledJobs "spooled_jobs" [TIMESTAMPTZOID, TIMESTAMPTZOID];
    /// Stored jobs as rows of awa.jobs.
    StoredJobs "stored_jobs" [INT8ARRAYOID, INT8ARRAYOID];
    /// The same for the canonical engine.
    CanonicalJobs "canonical_jobs" [INT8ARRAYOID, INT8ARRAYOID];
    /// Keeps everybody from the embedded storage.
    LockEmbedded "lock_embedded" [];
    /// What waits there.
    Waiting "waiting" [REGCLASSOID];
    /// Deletes ready jobs that were moved.
    AdoptedReady "adopted_ready" [];
    /// Deletes deferred jobs that were moved.
    AdoptedDeferred "adopted_deferred" [];
    /// Lets go of their keys.
    AdoptedClaims "adopted_claims" [];
    /// Deletes the segments.
    DropSegments "drop_segments" [];
    /// Makes segments for what is left.
    LeftSegments "left_segments" [];
    /// Keeps other discards away.
    DiscardLock "discard_lock" [];
    /// Removes a waiting job of the embedded storage.
    Discard "discard" [INT8OID];
    /// Removes those of a queue.
    DiscardQueue "discard_queue" [TEXTARRAYOID];
    /// Whether the caller may provision lanes.
    MayProvision "may_provision" [];
    /// Whether a lane is complete.
    LaneExists "lane_exists" [TEXTOID, INT2OID, INT2OID, TEXTOID];
    /// Whether the lane's row exists.
    LaneRowExists "lane_row_exists" [TEXTOID, INT2OID];
    /// Makes the lane's row.
    LaneRow "lane_row" [TEXTOID, INT2OID];
    /// Makes the lane's enqueue head.
    LaneEnqueueHead "lane_enqueue_head" [TEXTOID, INT2OID, INT2OID];
    /// Makes the lane's claim head.
    LaneClaimHead "lane_claim_head" [TEXTOID, INT2OID, INT2OID];
    /// Makes the lane's sequences.
    LaneSequences "lane_sequences" [TEXTOID, INT2OID, INT2OID];
    /// Lists the grants that the lane's sequences need.
    LaneGrants "lane_grants" [TEXTOID, INT2OID, INT2OID, TEXTOID];
    /// Lanes and what waits in them.
    LaneStates "lane_states" [TEXTOID];
    /// The same in awa's storage.
    LaneStatesAwa "lane_states_awa" [TEXTOID];
    /// Lanes with their sequences.
    LaneCursors "lane_cursors" [OIDOID];
    /// The ends of lanes.
    LaneEnds "lane_ends" [TEXTARRAYOID, INT2ARRAYOID, INT2ARRAYOID];
    /// The greatest id of a job in awa's queue storage.
    LastIdAwa "last_id_awa" [];
    /// The same in the embedded storage.
    LastIdEmbedded "last_id_embedded" [];
    /// The same of the canonical engine.
    LastIdCanonical "last_id_canonical" [];
    /// Who can move a sequence forward.
    WhoMayRepair "who_may_repair" [OIDOID, OIDOID];
    /// Lanes that awa's workers never leave, and where their cursors must go.
    StalledLanes "stalled_lanes" [TEXTARRAYOID, INT2ARRAYOID, INT2ARRAYOID, INT8ARRAYOID];
    /// Keeps claims from a lane.
    LockClaimHead "lock_claim_head" [TEXTOID, INT2OID, INT2OID];
    /// What is wrong with lane sequences.
    LaneSequenceProblems "lane_sequence_problems" [TEXTOID, TEXTOID, BOOLOID];
    /// Whether a sequence is a lane's.
    LaneOfSequence "lane_of_sequence" [TEXTOID];
    /// What there is of a lane.
    LaneParts "lane_parts" [TEXTOID, INT2OID, INT2OID, TEXTOID];
    /// Whether a lane has segments.
    LaneHasSegments "lane_has_segments" [TEXTOID, INT2OID, INT2OID];
    /// The oldest slot of the lease or claim ring.
    RingOldest "prune/oldest" [];
    /// The oldest slot of the queue ring.
    QueueOldest "prune/queue_oldest" [];
    /// Locks a ring's state.
    LockRing "prune/lock_ring" [];
    /// Locks a slot's row.
    LockSlot "prune/lock_slot" [INT4OID];
    /// Whether a slot of the queue ring has rows.
    QueueRows "prune/queue_rows" [];
    /// Why it must stay.
    QueueGates "prune/queue_gates" [INT4OID];
    /// Locks its partitions.
    QueueLock "prune/queue_lock" [];
    /// Carries young failed rows out of it.
    QueueCarry "prune/queue_carry" [TIMESTAMPTZOID];
    /// And their counts.
    QueueCarryCounts "prune/queue_carry_counts" [TIMESTAMPTZOID];
    /// Counts the rest for good.
    QueueFold "prune/queue_fold" [TIMESTAMPTZOID];
    /// Empties it.
    QueueTruncate "prune/queue_truncate" [];
    /// Whether it has live counts.
    HasLiveCounts "prune/has_live_counts" [INT4OID];
    /// Drops them.
    DropLiveCounts "prune/drop_live_counts" [INT4OID];
    /// Whether a slot of the lease ring has rows.
    LeaseRows "prune/lease_rows" [];
    /// Why it must stay.
    LeaseGates "prune/lease_gates" [];
    /// Locks its partition.
    LeaseLock "prune/lease_lock" [];
    /// Empties it.
    LeaseTruncate "prune/lease_truncate" [];
    /// Whether a slot of the claim ring has rows.
    ClaimRows "prune/claim_rows" [];
    /// Why it must stay.
    ClaimGates "prune/claim_gates" [];
    /// Locks its partitions.
    ClaimLock "prune/claim_lock" [];
    /// Empties it.
    ClaimTruncate "prune/claim_truncate" [];
    /// Resets its cursors.
    ClaimCursors "prune/claim_cursors" [INT4OID];
    /// Slots with terminal counts to fold.
    RollupSlots "prune/rollup_slots" [];
    /// Whether a slot can still be folded.
    RollupIsSealed "prune/rollup_is_sealed" [INT4OID, INT8OID];
    /// Locks its deltas.
    RollupLock "prune/rollup_lock" [];
    /// Counts them.
    RollupCount "prune/rollup_count" [];
    /// Folds them.
    RollupFold "prune/rollup_fold" [];
    /// Empties them.
    RollupTruncate "prune/rollup_truncate" [];
    /// Whether somebody keeps old row versions alive.
    Pinned "prune/pinned" [];
    /// Tables that autovacuum leaves without statistics.
    AnalyzedRelations "analyzed_relations" [OIDOID];
    /// Whether one never had a row.
    IsEmpty "is_empty" [OIDOID];
    /// Analyzes one, with its own rights.
    AnalyzeRelation "analyze_relation" [OIDOID];
    /// Rows that the planner assumes.
    PlannedRows "planned_rows" [OIDOID];
    /// What changes when these tables do.
    Fingerprint "fingerprint" [OIDOID];
    /// Whether a pass left tables out.
    StatisticsIncomplete "statistics_incomplete" [TIMESTAMPTZOID];
    /// Whether a subscription brings rows into a schema's tables.
    Subscribed "subscribed" [OIDOID];
    /// Slots of a ring.
    RingSlots "ring_slots" [TEXTARRAYOID, OIDOID];
    /// Records a run.
    RecordRun "record_run" [TIMESTAMPTZOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID, TEXTOID, INT8OID, INTERVALOID, TEXTOID, TEXTOID];
    /// Records how often it was repeated.
    RecordRepeats "record_repeats" [INT8OID, INT8OID];
    /// Deletes old records.
    TrimRuns "trim_runs" [INT4OID];
    /// Process that holds one of the extension's own locks.
    LockHolder "lock_holder" [OIDOID, INT4OID];
    /// Whether a process is in somebody's way.
    IsInTheWay "is_in_the_way" [INT4OID];
    /// Owner and version of the extension.
    ExtensionIdentity "extension_identity" [];
    /// Whether roles own the extension.
    Owned "owned" [OIDARRAYOID];
    /// A trigger that runs a function of another role.
    ForeignTrigger "foreign_trigger" [OIDARRAYOID, OIDOID];
    /// A function that is not the extension's own.
    ForeignFunction "foreign_function" [];
    /// The sequences of a storage.
    StorageSequences "storage_sequences" [OIDOID];
    /// Whether the caller may drop extensions, schemas and what roles own.
    MayDrop "may_drop" [TEXTARRAYOID, TEXTARRAYOID, OIDARRAYOID];
    /// Tables and sequences of the extension, in the order of writers.
    OwnRelations "own_relations" [];
    /// Whether the embedded storage has undelivered jobs.
    Undelivered "undelivered" [];
}

impl Statement {
    /// The text for a target.
    pub fn sql(self, target: &Target) -> String {
        let suffix = target.slot.map_or(String::new(), |slot| format!("_{slot}"));
        self.template()
            .replace("{suffix}", &suffix)
            .replace("{ring}", target.ring)
            .replace("{position}", target.position)
            .replace("{shared}", target.shared)
            .replace("{storage}", &target.storage)
    }
}
