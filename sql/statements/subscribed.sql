-- Whether a subscription of this database brings rows into tables of schema $1; one that is disabled may go on any time.
SELECT EXISTS (
    SELECT FROM pg_subscription_rel AS subscribed
      JOIN pg_class AS class ON class.oid = subscribed.srrelid
     WHERE class.relnamespace = $1)
