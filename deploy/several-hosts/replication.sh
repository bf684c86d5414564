#!/bin/sh
# Runs once, where a PostgreSQL of docker-compose.yml makes its database: lets the other host copy it.
set -eu
psql --set=ON_ERROR_STOP=1 --set=password="$GRADER_REPLICATION_PASSWORD" --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" <<'SQL'
CREATE ROLE replicator REPLICATION LOGIN PASSWORD :'password';
SQL
for address in "$GRADER_ONE" "$GRADER_TWO"; do
    echo "host replication replicator $address/32 scram-sha-256" >> "$PGDATA/pg_hba.conf"
done
