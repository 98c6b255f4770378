#!/usr/bin/env bash
# The whole check, from a fresh clone on a Debian that has a Rust toolchain and gcc. It asks nothing, so CI runs it as well.
# Options: --no-install  take the machine as it is
# WEBLOOM_STATIC=1       build and try the static program, too: minutes on two processors, so it is the default from four on
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

# What the tests on real input compare with: a web server, another crawler, a documentation tree; a place for Schemathesis; and
# the browser that opens the portal; what finds out which libraries a Debian package needs; the other database; what makes a
# clean system; and what reads metrics.
packages=(nginx wget python3 python3-doc python3-venv chromium chromium-driver dpkg-dev postgresql mmdebstrap prometheus)
# Runs examples/node; one that did not come by apt will do.
command -v node >/dev/null || packages+=(nodejs)
# Every one of these is there when the packages are; a container image may have been told to leave out /usr/share/doc.
there() {
    local path
    PATH="$PATH:/usr/sbin"
    for path in nginx wget python3 chromium chromedriver dpkg-shlibdeps psql mmdebstrap prometheus promtool node; do command -v "$path" >/dev/null || return 1; done
    python3 -c "import ensurepip, venv" 2>/dev/null || return 1
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || return 1
    [[ -e /usr/share/doc/python3-doc/html/index.html ]]
}

say() { printf '\n== %s (after %s s)\n' "$*" $SECONDS; }

install() {
    local root=()
    if [[ $(id -u) != 0 ]]; then
        command -v sudo >/dev/null && sudo -n true 2>/dev/null || {
            echo "these packages are missing and only root can install them: apt-get install ${packages[*]}" >&2
            exit 1
        }
        root=(sudo -n)
    fi
    local keep_stopped=/usr/sbin/policy-rc.d
    if [[ ! -e $keep_stopped ]]; then
        # The tests start a server of their own; the system's is not to run.
        printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee $keep_stopped >/dev/null
        "${root[@]}" chmod +x $keep_stopped
        # shellcheck disable=SC2064
        trap "${root[*]} rm -f $keep_stopped" EXIT
    fi
    local how=(env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Dpkg::Use-Pty=0)
    "${root[@]}" "${how[@]}" update
    "${root[@]}" "${how[@]}" -o 'Dpkg::Options::=--path-include=/usr/share/doc/*' \
        install --no-install-recommends --reinstall "${packages[@]}"
    trap - EXIT
    if [[ -e $keep_stopped ]]; then "${root[@]}" rm -f $keep_stopped; fi
}

if ! there && [[ ${1:-} != --no-install ]]; then
    say "packages: ${packages[*]}"
    install
fi
for tool in rustfmt clippy; do
    cargo "${tool/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$tool"
done

# The Pythons of this machine that the package supports, in PATH or by pyenv: WEBLOOM_PYTHON_3_12 and so on.
pythons=()
for version in 3.10 3.11 3.12 3.13; do
    path=$("python$version" -c 'import sys, venv; print(sys.executable)' 2>/dev/null) ||
        path=$(PYENV_VERSION=$(pyenv latest "$version" 2>/dev/null) "python$version" -c 'import sys, venv; print(sys.executable)' 2>/dev/null) ||
        continue
    export "WEBLOOM_PYTHON_${version/./_}=$path"
    pythons+=("$path")
done

# Nothing is left from before, so nothing is gained by what lets the next compilation be short.
[[ -e ${CARGO_TARGET_DIR:-target}/debug ]] || export CARGO_INCREMENTAL=0

# What is no Debian package lies under target/. It is installed while the first lints are compiled.
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
tools=$target/tools
mkdir -p "$tools"
installing=
if [[ ${1:-} != --no-install ]]; then
    bash tests/tools.sh ${pythons[@]+"${pythons[@]}"} >"$tools/log" 2>&1 &
    installing=$!
fi

say "format"
cargo fmt --all --check

say "lints"
cargo clippy --locked --all-targets --features faults -- -D warnings

say "tools"
if [[ -n $installing ]]; then
    wait $installing || {
        cat "$tools/log" >&2
        exit 1
    }
fi
# Whether what is installed is what this list says. Otherwise what needs it is left out.
installed() {
    cmp -s "$1" "$2" || {
        say "SKIPPED: $3"
        return 1
    }
}
if installed tests/schemathesis.txt "$target/schemathesis/installed.txt" "no Schemathesis, so the OpenAPI document is not called at random"; then
    export WEBLOOM_SCHEMATHESIS=$target/schemathesis/bin/schemathesis
fi
python=
if installed python/tests/requirements.txt "$tools/python/installed.txt" "no virtual environment, so the Python package is not tested"; then
    python=$tools/python
fi
if [[ -e $tools/axe/axe_playwright_python/axe.min.js ]]; then
    export WEBLOOM_AXE=$tools/axe/axe_playwright_python/axe.min.js
else
    say "SKIPPED: no axe-core, so no page of the portal is checked with it"
fi
if [[ -e $tools/clean/installed.txt ]]; then
    export WEBLOOM_CLEAN_ROOT=$tools/clean/root
else
    say "SKIPPED: no clean system, so the tutorials are not followed there"
fi
if [[ -x $tools/bin/cargo-deb ]]; then
    export WEBLOOM_CARGO_DEB=$tools/bin/cargo-deb
else
    say "SKIPPED: no cargo-deb, so the Debian package is not tested"
fi
if installed examples/node/package-lock.json "$tools/node/installed.json" "no compiler of TypeScript, so examples/node is not tested"; then
    # The compiler looks for types beside the sources.
    cp examples/node/{tsconfig.json,worker.ts} "$tools/node"
    "$tools/node/node_modules/.bin/tsc" --project "$tools/node"
    export WEBLOOM_NODE_WORKER=$tools/node/build/worker.js
fi

say "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps
if installed docs/requirements.txt "$tools/docs/installed.txt" "no MkDocs, so the site of the documentation is not built"; then
    # A link or an anchor that leads nowhere, and a page that is not in the navigation, end it.
    site=$target/site
    NO_MKDOCS_2_WARNING=1 "$tools/docs/bin/mkdocs" build --quiet --strict --site-dir "$site"
    if grep -rnoE '<(script|link|img|iframe|source)[^>]* (src|href)="?(https?:)?//[^" >]*' "$site" --include='*.html' ||
        grep -rnoE '(url\(|@import)[^;)]*(https?:)?//[^;)]*' "$site" --include='*.css'; then
        echo "the pages of the site load what is above from elsewhere" >&2
        exit 1
    fi
fi

say "dependencies"
# Licences, duplicates and sources always; known weaknesses where their list can be had.
deny=$tools/bin/cargo-deny
if [[ -x $deny ]]; then
    "$deny" --all-features --locked check licenses bans sources
    if "$deny" --all-features --locked fetch db >"$tools/fetch.log" 2>&1; then
        "$deny" --all-features --locked check --disable-fetch advisories
    else
        echo "SKIPPED: the list of known weaknesses (RustSec) cannot be fetched from here, so dependencies are not compared with it"
    fi
else
    echo "SKIPPED: no cargo-deny, so licences, duplicates, sources and known weaknesses of dependencies are not checked"
fi

say "the crate, and the SDK alone"
# What is published compiles by itself, at least for those who write workers: the rest would take minutes. A test compares its files.
crate=.
if cargo info --quiet serde >/dev/null 2>&1; then
    rm -rf "$target/package"
    cargo publish --dry-run --locked --allow-dirty --quiet --no-verify
    cargo package --locked --allow-dirty --quiet --no-verify
    tar --extract --gzip --file "$(echo "$target"/package/webloom-*.crate)" --directory "$target/package"
    crate=$(echo "$target"/package/webloom-*/)
else
    echo "SKIPPED: the index of the registry cannot be reached from here, so a publication is not tried"
fi
for features in sdk sdk,tls,opentelemetry; do
    cargo check --locked --no-default-features --features $features --lib --examples --manifest-path "$crate/Cargo.toml" --target-dir "$target"
done
if cargo tree --locked --no-default-features --features sdk --edges normal,build --prefix none |
    grep -E '^(diesel|libsqlite3-sys|actix-web|actix-web-actors|schemars) '; then
    echo "the SDK must not bring the crates above" >&2
    exit 1
fi

say "tests"
if ((!${WEBLOOM_STATIC:-$(($(nproc) >= 4))})); then
    echo "SKIPPED: there are fewer than four processors, or WEBLOOM_STATIC is 0, so the static program is not built"
elif [[ ${1:-} == --no-install ]] || ! rustup target add "$(uname -m)-unknown-linux-musl"; then
    echo "SKIPPED: Rust's target for musl cannot be fetched from here, or must not (--no-install), so the static program is not built"
else
    # A test starts the file, which the last line of the output names.
    WEBLOOM_STATIC_PROGRAM=$(realpath "$(PROFILE=dev bash packaging/static.sh | tail -1)")
    export WEBLOOM_STATIC_PROGRAM
fi

log=$(mktemp)
part=$(mktemp)
flaky=()
trap 'rm -f "$log" "$part"' EXIT

# The names of the tests in $part that failed: by their lines, and by the list at the end, since other output may stand within such a line.
failed() { sed -nE 's/^test ([^ ]+) \.\.\. FAILED$/\1/p; s/^    ([a-z0-9_]+(::[a-z0-9_]+)+)$/\1/p' "$part" | sort -u; }

# A journey starts processes, browsers and databases, and now and then a busy machine is too slow for one. So up to five tests
# that failed run once more, alone. The last lines of the check name those that passed then. A test that fails twice ends the check.
rust_tests() {
    local names
    cargo test --locked --features faults --no-fail-fast "$@" 2>&1 | tee "$part" && { cat "$part" >>"$log"; return; }
    cat "$part" >>"$log"
    if (($(grep -cE '^ +Running ' "$part") != $(grep -c '^test result: ' "$part"))); then
        echo "a suite ended before its tests did" >&2
        return 1
    fi
    mapfile -t names < <(failed)
    if ((${#names[@]} == 0 || ${#names[@]} > 5)); then
        echo "${#names[@]} tests failed: only one to five are run again" >&2
        return 1
    fi
    say "once more: ${names[*]}"
    local filter=() argument
    for argument in "$@"; do
        [[ $argument == -- ]] && break
        filter+=("$argument")
    done
    cargo test --locked --features faults --no-fail-fast "${filter[@]}" -- --exact --test-threads 1 "${names[@]}" 2>&1 | tee "$part" || return 1
    # Each of them must have been found and run.
    (($(awk '/^test result: ok/ { passed += $4 } END { print passed + 0 }' "$part") == ${#names[@]})) || return 1
    cat "$part" >>"$log"
    flaky+=("${names[@]}")
}
cargo test --locked --features faults --doc 2>&1 | tee "$log"
# The journeys wait for processes, leases and browsers most of the time, so more of them run at once than there are processors.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 4))}
# The examples are programs that a test of the README starts.
cargo build --locked --features faults --bins --examples
# The others are compiled beside the tests of the Python package.
cargo test --locked --features faults --lib --tests --no-run >"$tools/tests.log" 2>&1 &
compiling=$!
if [[ -n $python ]]; then
    say "Python package"
    wheels=$python/wheels
    rm -rf "$wheels"
    "$python/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --wheel-dir "$wheels" ./python
    "$python/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall "$wheels"/webloom-*.whl
    # Its programs for the pages of the documentation that use it.
    export WEBLOOM_PYTHON=$python/bin
    WEBLOOM_BINARY=$target/debug/webloom
    # The program as a wheel, without what only a debugger reads, which is half of it; and all that the wheels need.
    strip -o "$wheels/webloom" "$WEBLOOM_BINARY"
    WEBLOOM_BINARY=$wheels/webloom "$python/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index \
        --wheel-dir "$wheels" ./python/server
    rm "$wheels/webloom"
    cp "$python"/dependencies/*.whl "$wheels"
    export WEBLOOM_WHEELS=$wheels
    (
        export WEBLOOM_BINARY PYTHONDONTWRITEBYTECODE=1
        cd python
        "$python/bin/ruff" check --no-cache .
        "$python/bin/ruff" format --no-cache --check .
        "$python/bin/mypy" --cache-dir "$python/mypy"
        "$python/bin/pytest" --quiet --numprocesses $(($(nproc) * 2)) --timeout 120 --reruns 1 -r R -p no:cacheprovider
    ) | tee -a "$log"
    say "Rust"
fi
wait $compiling || {
    cat "$tools/tests.log" >&2
    exit 1
}
rust_tests --lib --tests
# Too much for a machine that runs other tests at the same time.
rust_tests --test it -- --ignored --test-threads 1

# The same store and the same journeys with the other database. It runs for these tests alone, and is gone with them.
say "PostgreSQL"
bin=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -1)
cluster=$(mktemp -d)
owner=()
if [[ $(id -u) == 0 ]]; then
    # The server refuses to run as root.
    chown postgres "$cluster"
    owner=(runuser -u postgres --)
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
(cd "$cluster" && "${owner[@]}" "$bin/initdb" -D "$cluster/data" -U webloom -A trust --no-locale -E UTF8 --no-sync >/dev/null)
# It may be killed here, but the power is not cut.
options="-p $port -k $cluster -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=500"
(cd "$cluster" && "${owner[@]}" "$bin/pg_ctl" -D "$cluster/data" -o "$options" -l "$cluster/log" -w start >/dev/null)
trap 'rm -f "$log" "$part"; cd "$cluster" && "${owner[@]}" "$bin/pg_ctl" -D "$cluster/data" -m immediate stop >/dev/null; rm -rf "$cluster"' EXIT
export WEBLOOM_TEST_POSTGRES=postgres://webloom@127.0.0.1:$port
rust_tests --lib -- store::
# Not those about pages, documents, downloads and the command line, which the store does not change, two that measure time, and
# those with servers of their own, which have run above.
rust_tests --test it -- --skip portal --skip overview:: --skip actors:: --skip documents:: --skip clean_system:: --skip packaging:: \
    --skip image:: --skip examples:: --skip ahead:: --skip polite_fleet:: \
    --skip hostile:: --skip redirect --skip real_input:: --skip agent_ --skip command_ --skip tls:: --skip http2:: --skip sockets:: \
    --skip addresses:: --skip settings:: --skip prometheus:: --skip the_page_ \
    --skip broker_failures:: --skip postgres:: --skip postgres_failures:: --skip migrate::

say "all tests together"
mapfile -t again < <(sed -nE 's/^RERUN (.*)$/\1/p' "$log" | sort -u)
if ((${#again[@]} > 5)); then
    printf '%s tests of the Python package failed at the first try: only five may\n' ${#again[@]} >&2
    exit 1
fi
printf 'passed at the second try: %s\n' ${flaky[@]+"${flaky[@]}"} ${again[@]+"${again[@]}"} | grep -v ': $' || true
awk -v flaky=${#flaky[@]} -v again=${#again[@]} '
     /^test result: / { passed += $4; failed += $6; ignored += $8; suites += 1 }
     /^[0-9]+ passed.* in [0-9.]+s/ { passed += $1; suites += 1 }
     END { failed -= flaky
           printf "test result: %s. %d passed; %d failed; %d ignored; in %d suites; %d of them at the second try\n", \
               failed == 0 ? "ok" : "FAILED", passed, failed, ignored, suites, flaky + again
           exit suites == 0 || failed != 0 }' "$log"
