#!/bin/sh
# Runs the demo on a deployment, with the variables that a client of compose.yaml has, or that deploy/local.sh gives:
#
#   docker compose -f deploy/compose.yaml run --rm client sh /demo.sh
#   deploy/local.sh deploy/demo.sh --ship-packages
set -eu

catalog=${TABLESTORE_CATALOG:?is the URL of a catalog service}
master=${SPARK_MASTER:?is the URL of a Spark master}
brokers=${TABLESTORE_KAFKA:?is the address of Kafka}
exec tablestore demo --catalog "${catalog}" --master "${master}" --kafka "${brokers}" "$@"
