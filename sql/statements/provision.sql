SELECT awa_ingest.provision_lane($1, $2, $3)
