#!/usr/bin/env bash
# Builds the Debian package with cargo-deb: `bash packaging/deb.sh [OUTPUT]`, a file or a folder. PROFILE=dev takes another profile of
# Cargo than `dist`, NO_BUILD=1 the program that this profile has built already, CARGO_DEB=path another cargo-deb than that of Cargo.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${PROFILE:-dist}
if [[ -z ${NO_BUILD:-} ]]; then
    cargo build --locked --profile "$profile" --bin webloom
fi
target=${CARGO_TARGET_DIR:-target}
program=$target/${profile/#dev/debug}/webloom

# What the program says of itself. `target/packaging` is where [package.metadata.deb] in Cargo.toml looks for it.
made=target/packaging
rm -rf "$made"
mkdir -p "$made"
"$program" man "$made/man"
gzip -9n "$made"/man/*.1
for shell in bash zsh fish; do
    "$program" completions "$shell" >"$made/webloom.$shell"
done

quick=()
# The package of a test is not sent anywhere, so it need not be small. A cargo-deb that is built without optimisation takes minutes to
# compress; gzip takes seconds.
if [[ $profile == dev ]]; then quick=(--fast --compress-type gzip --compress-system); fi
"${CARGO_DEB:-cargo-deb}" --no-build --locked --profile "$profile" --strip --quiet "${quick[@]}" ${1:+--output "$1"}
