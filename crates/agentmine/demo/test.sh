#!/bin/sh
# Prints every failing case. The exit code is their number.
cd "$(dirname "$0")" || exit 1
failed=0
check() {
    got=$(sh ./slug.sh "$1")
    if [ "$got" != "$2" ]; then
        echo "FAIL: '$1' gave '$got', expected '$2'"
        failed=$((failed + 1))
    fi
}
check 'Hello World' 'hello-world'
check 'Rust, in five minutes!' 'rust-in-five-minutes'
check '  spaces  around  ' 'spaces-around'
[ "$failed" -eq 0 ] && echo "all cases pass"
exit "$failed"
