SELECT {storage}.ensure_lane_sequences($1, $2, $3)
