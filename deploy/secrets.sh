#!/bin/sh
# Makes the secrets of deploy/compose.yaml in deploy/secrets, each in a file: once, with random values. What is there stays.
#
#   deploy/secrets.sh [FOLDER]
set -eu

folder=${1:-"$(dirname "$0")/secrets"}
umask 077
mkdir -p "$folder"
printf '*\n' > "$folder/.gitignore"

random() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

# Containers run as another user than the one who calls this, so files are readable, in a folder that is not.
keep() {
    if [ ! -e "$folder/$1" ]; then
        printf '%s\n' "$2" > "$folder/$1.new"
        chmod 444 "$folder/$1.new"
        mv "$folder/$1.new" "$folder/$1"
    fi
}

keep token "$(random)"
keep database-password "$(random)"
keep database-url "postgresql://tablestore:$(cat "$folder/database-password")@postgres:5432/catalog"
keep s3-access-key "$(random | cut -c 1-20)"
keep s3-secret-key "$(random)"
keep aws-credentials "[default]
aws_access_key_id = $(cat "$folder/s3-access-key")
aws_secret_access_key = $(cat "$folder/s3-secret-key")"
keep spark.conf "spark.authenticate true
spark.authenticate.secret $(random)"

echo "The secrets are in $folder: keep a copy of them where you keep your other secrets." >&2
