#!/bin/sh
# Runs once, when the server's data folder is made: databases and roles with passwords. `varve warehouse roles` (service
# `roles`) adds the roles of readers.
set -eu
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
  --set owner_password="$VARVE_OWNER_PASSWORD" --set dagster_password="$DAGSTER_PASSWORD" <<'SQL'
create role varve_owner login password :'owner_password';
create role dagster login password :'dagster_password';
-- A publish must see everybody's snapshots.
grant pg_read_all_stats to varve_owner;
create database varve;
grant create, connect, temporary on database varve to varve_owner;
create database dagster owner dagster;
SQL
