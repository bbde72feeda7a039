#!/bin/sh
# Run by the image of Postgres when it creates the database.
set -eu
psql -v owner="'$AGENTMINE_OWNER'" -v fleet="'$AGENTMINE_FLEET'" -v autoscaler="'$AGENTMINE_AUTOSCALER'" \
    -U postgres -f /docker-entrypoint-initdb.d/roles/roles.sql agentmine
