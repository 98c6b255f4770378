#!/usr/bin/env bash
# Builds the program and its image: `bash image/build.sh [NAME:TAG]`. DOCKER=podman takes another program than docker,
# PROGRAM=path one that is built already, on a system whose libraries are no older than those here.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
if [ -z "${PROGRAM:-}" ]; then
    cargo build --locked --profile dist --bin webloom
    PROGRAM=$target/dist/webloom
fi
bash image/root.sh "$PROGRAM" "$target"/image
"${DOCKER:-docker}" build --tag "${1:-webloom}" --file image/Dockerfile "$target"/image
