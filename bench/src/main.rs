//! Measures the ways to enqueue jobs side by side: awa's, this extension's, and the floor below which no
//! way can get. See the README beside this for the method.

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

mod candidates;
mod cpu;
mod jobs;
mod machine;
mod plan;
mod report;
mod runner;
mod server;
mod stats;
mod stores;
mod targets;
mod upkeep;
mod watch;

use candidates::NAMES;
use plan::Case;
use runner::Runner;
use server::Server;
use stores::Stores;

/// Compares awa's enqueue paths, those of awa_ingest and plain COPY on a private server from the programs in
/// AWA_INGEST_PG_BIN.
#[derive(Parser)]
struct Options {
    /// Measured rounds of each case; slow paths take part in every third, and batches above 100,000 have at most five
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,

    /// Jobs per call, but of replays, which have 185 [default: 1,100,500,10000,1000000]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sizes: Vec<u32>,

    /// Jobs with unique keys, without, or one after the other; unless asked for, batches above 100,000 are without
    #[arg(long, value_enum)]
    unique: Option<Keys>,

    /// Only these paths; a ratio needs both of its sides
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(NAMES))]
    only: Vec<String>,

    /// Queues, and so lanes, that the jobs of a batch are spread over; replays may deadlock in awa's function if there are several
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    queues: u64,

    /// One round of a few calls, to see that everything works; the figures mean nothing
    #[arg(long)]
    quick: bool,

    /// Only what the upkeep costs, and what delays it; without options that choose paths or sizes, this comes last
    #[arg(long)]
    upkeep: bool,

    /// Repeat this path, with the first of the sizes, until Ctrl-C: for a profiler
    #[arg(long, value_name = "PATH", value_parser = PossibleValuesParser::new(NAMES))]
    profile_hold: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Keys {
    Both,
    With,
    Without,
}

impl Options {
    fn cases(&self) -> Vec<Case> {
        let keys: &[bool] = match self.unique {
            None | Some(Keys::Both) => &[false, true],
            Some(Keys::With) => &[true],
            Some(Keys::Without) => &[false],
        };
        let sizes = match (self.sizes.as_slice(), self.quick) {
            ([], false) => &plan::SIZES[..],
            ([], true) => &plan::QUICK_SIZES,
            (sizes, _) => sizes,
        };
        let of_size = |&size: &u32| keys.iter().flat_map(move |&unique| Case::of(size as usize, unique));
        let wanted = |case: &Case| !(case.is_long() && case.unique && self.unique.is_none());
        let replay = keys.contains(&true).then_some(Case::REPLAY);
        sizes.iter().flat_map(of_size).filter(wanted).chain(replay).collect()
    }

    fn takes_all(&self) -> bool {
        self.sizes.is_empty() && self.only.is_empty() && self.unique.is_none() && self.profile_hold.is_none()
    }

    fn wants(&self, name: &str) -> bool {
        match &self.profile_hold {
            Some(held) => held == name,
            None => self.only.is_empty() || self.only.iter().any(|only| only == name),
        }
    }
}

// One thread for client and connections: no wake-up across threads is part of any figure.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::parse();
    // Registered before the server starts, so that from here on a signal ends the run through the guard.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = measure(&options) => result,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    }
}

async fn measure(options: &Options) -> Result<()> {
    if !options.upkeep {
        run(options, &Server::start("")?).await?;
    }
    if options.upkeep || options.takes_all() {
        let plan = upkeep::Plan::new(usize::from(options.rounds).min(3), options.quick);
        upkeep::run(&Server::start(upkeep::SETTINGS)?, plan).await?;
    }
    Ok(())
}

async fn run(options: &Options, server: &Server) -> Result<()> {
    let stores = Stores::create(server.socket_folder()).await?;
    let (version, date) = stores.version_and_date().await?;
    let (mut skipped, mut candidates) = (Vec::new(), Vec::new());
    for name in NAMES.into_iter().filter(|name| options.wants(name)) {
        if candidates::need(name) > stores.offer {
            skipped.push(name);
        } else {
            candidates.push(candidates::create(name, &stores).await?);
        }
    }
    if candidates.is_empty() {
        bail!("the paths asked for need more of the extension awa_ingest than this server has");
    }

    let generator = jobs::Generator::new(options.queues);
    let mut runner = Runner { stores, candidates, generator, quick: options.quick };
    let mut cases = options.cases();
    cases.retain(|case| runner.candidates.iter().any(|candidate| case.admits(candidate.pace())));
    if options.profile_hold.is_some() {
        let Some(&case) = cases.first() else { bail!("it takes no batches of such sizes") };
        return runner.hold(0, case).await;
    }
    let rounds = if options.quick { 1 } else { usize::from(options.rounds) };
    let mut outcomes = Vec::new();
    for case in cases {
        outcomes.push(runner.measure(case, case.rounds(rounds)).await?);
    }
    if options.quick {
        println!("A quick run: the figures mean nothing.\n");
    }
    print!("{}", report::markdown(&machine::describe(&version, &date), &skipped, &outcomes)?);
    Ok(())
}
