# `just` lists these; `just ci` is what CI runs.

set shell := ["bash", "-cu"]

features := "faults"

_default:
    @just --list --unsorted

# Everything that CI runs
ci:
    bash tests/run.sh

# Format, or with --check only look
fmt *args:
    cargo fmt --all {{ args }}

# Lints as errors
lint:
    cargo clippy --locked --all-targets --features {{ features }} -- -D warnings

# The documentation, warnings as errors
doc *args:
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items {{ args }}

# The site of docs/ in target/site, checked for links (after `just ci` has installed MkDocs)
site:
    NO_MKDOCS_2_WARNING=1 target/tools/docs/bin/mkdocs build --strict

# Tests; a name narrows them: just test frontier
test *args:
    cargo test --locked --features {{ features }} {{ args }}

# What a user's worker compiles: no database, no server
sdk:
    cargo check --locked --no-default-features --features sdk --lib --examples
    ! cargo tree --locked --no-default-features --features sdk --edges normal,build --prefix none | grep -E '^(diesel|libsqlite3-sys|actix-web) '

# Licences, advisories and sources of the dependencies (needs cargo-deny)
deny:
    cargo deny --all-features --locked check

# The Debian package, optimised (needs cargo-deb)
deb *args:
    bash packaging/deb.sh {{ args }}

# JSON lines of figures: just bench queue, just bench crawl
bench name="queue" *args:
    cargo bench --locked --bench {{ name }} -- {{ args }}

# The main job in small
demo *args:
    cargo run --release --locked -- demo {{ args }}

# Where the time of a broker goes, as a text report (needs perf)
profile pid seconds="10":
    perf record -F 199 -g -p {{ pid }} -o target/perf.data -- sleep {{ seconds }}
    perf report -i target/perf.data --no-children --percent-limit 0.5 --stdio | head -80
