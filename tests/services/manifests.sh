# shellcheck shell=bash
# The validator of the Kubernetes manifests, from PyPI, in the exact versions of `manifests/requirements.txt`. It is
# fetched once; later runs contact no registry.

install_manifest_validator() {
    [ -z "${AGENTMINE_TEST_MANIFESTS:-}" ] || return 0
    local list=$ROOT/tests/services/manifests/requirements.txt folder
    folder=$STATE/manifests-$({ cat "$list" && python_version; } | sha256sum | cut -c1-16)
    export AGENTMINE_TEST_MANIFESTS=$folder
    [ ! -e "$folder" ] || return 0
    say "installing the validator of manifests from PyPI"
    rm -rf "$STATE"/manifests-*
    if ! /usr/bin/python3 -m pip install --disable-pip-version-check --root-user-action=ignore --no-deps \
        --only-binary=:all: --target "$folder.part" --requirement "$list" >"$STATE/manifests.log" 2>&1 9>&-; then
        tail -n 20 "$STATE/manifests.log" >&2
        die "cannot install the validator of manifests; the full output is in $STATE/manifests.log"
    fi
    mv "$folder.part" "$folder"
}
