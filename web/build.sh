#!/usr/bin/env bash
# Builds the page into web/dist: a folder for any static host, or to open from disk. `--fast` builds the module without link-time
# optimisation, for tests. Where a tool is missing and cannot be had, says so and ends without an error.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=web
[ "${1:-}" = --fast ] && profile=web-test
target=wasm32-unknown-unknown
module=target/$target/$profile/meshwright_web.wasm
link=-Clink-arg=--emit-relocs # which functions and data refer to which: the module is split by it

skip() {
    echo "SKIPPED: $1; the page was not built"
    exit 0
}

rm -rf web/dist
command -v npm >/dev/null || skip "no npm here"

# The module: with a standard library that is compiled with it, where the toolchain has its source. A panic may then be a trap at once:
# nobody reads its message here, whose texts are 3 % of the module. Else by the toolchain in use if it has the target, else by Debian's
# compiler, unpacked and not installed.
tools=$PWD/target/rust-web
smallest="-Zunstable-options -Cpanic=immediate-abort -Zlocation-detail=none"
build() { # the cargo to use, and more of its arguments
    "$1" rustc --quiet --profile $profile --target $target -p meshwright-web --crate-type cdylib "${@:2}" -- $link
}
if [ -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ]; then
    RUSTFLAGS=$smallest RUSTC_BOOTSTRAP=1 build cargo -Z build-std=std,panic_abort
elif [ -d "$(rustc --print target-libdir --target $target)" ]; then
    build cargo
else
    root=$tools/root
    if [ ! -e "$root/whole" ]; then
        command -v apt-get >/dev/null || skip "no standard library for $target (rustup target add $target)"
        mkdir -p "$tools"
        apt-cache show rustc-web >/dev/null 2>&1 && apt-cache show lld-22 >/dev/null 2>&1 || apt-get update -qq || true # a fresh machine has no lists
        (cd "$tools" && apt-get download -qq rustc-web cargo-web rust-web-src libstd-rust-web-1.96 libstd-rust-web-dev libllvm22 \
            libgit2-1.5 libhttp-parser2.9 libmbedcrypto7 libmbedx509-1 libmbedtls14 lld-22 \
            && for package in *.deb; do dpkg -x "$package" root; done) \
            || skip "no standard library for $target, and Debian's rustc-web 1.96 cannot be had"
        ln -sfn "$root/usr/src/rustc-1.96.0" "$root/usr/lib/rustlib/src/rust"
        rm -f "$tools"/*.deb
        touch "$root/whole"
    fi
    RUSTFLAGS=$smallest LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu:$root/usr/lib/llvm-22/lib RUSTC=$root/usr/bin/rustc \
        RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$root/usr/lib/llvm-22/bin/wasm-ld \
        build "$root/usr/bin/cargo" -Z build-std=std,panic_abort
fi

# The page around it.
[ -d web/node_modules ] || npm ci --prefix web --silent --no-fund --no-audit || skip "the Node registry cannot be reached"
npm run --prefix web --silent check
# The module in two parts: what runs when a user plans, and the rest, which is loaded once something asks for it.
export PARTS=$PWD/target/web
node web/module/split.mjs "$module" "$PARTS"
npm run --prefix web --silent build -- --logLevel warn
size() { gzip -9 | wc -c; }
echo "web/dist: $(tar -cf - -C web/dist . | size) bytes gzipped; the module $(size <"$PARTS/engine.wasm"), and its rest, on demand, $(size <"$PARTS/rest.bin")"
