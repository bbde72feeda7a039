//! Histories as real repositories have them, and trees that attack those who clone them.

use super::*;

/// Runs `text` in bash and returns what it printed.
async fn script(world: &World, folder: &std::path::Path, text: &str) -> String {
    let output = tokio::process::Command::new("bash")
        .args(["-euc", text])
        .current_dir(folder)
        .env("HOME", world.home.path())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([
            ("GIT_AUTHOR_NAME", "A"),
            ("GIT_AUTHOR_EMAIL", "a@example.org"),
        ])
        .envs([
            ("GIT_COMMITTER_NAME", "A"),
            ("GIT_COMMITTER_EMAIL", "a@example.org"),
        ])
        .output()
        .await
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{stderr}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Puts a commit on upstream's `main` that another program may have written. `commit` prints its id.
async fn upstream_commit(world: &World, commit: &str) {
    let text = format!(
        "raw() {{ git hash-object -w -t \"$1\" --literally --stdin; }}
        bytes() {{ printf '%b' \"$(echo $1 | sed 's/../\\\\x&/g')\"; }}
        person='A <a@example.org> 1700000000 +0000'
        git fetch -q origin; git checkout -q -B main origin/main
        commit=$({commit}
        )
        git push -q origin +$commit:refs/heads/main"
    );
    script(world, &world.home.path().join("human"), &text).await;
}

const REPLACE_MAIN: &str = "git commit-tree -m replaced $(git mktree < /dev/null)";
const ATTRIBUTES: &str = "printf '* text=auto\\n*.png binary\\n' > .gitattributes; git add .
    git commit -q -m x; git rev-parse HEAD";
const LFS: &str = "echo '*.bin filter=lfs diff=lfs merge=lfs -text' > .gitattributes
    printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%064d\\nsize 9\\n' 7 > a.bin
    git add .; git commit -q -m x; git rev-parse HEAD";
const LONG_ATTRIBUTES: &str = "printf '%02500d text\\n' 1 > .gitattributes; git add .
    git commit -q -m x; git rev-parse HEAD";
const SUBMODULE: &str =
    "printf '[submodule \"a/b\"]\\n\\tpath = a/b\\n\\turl = ../b.git\\n' > .gitmodules
    git add .; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),a/b
    git commit -q -m x; git rev-parse HEAD";
const LINKS_AND_MODES: &str = "ln -s file1.txt link; ln -s ../outside out; mkdir -p 'ä ö/ü'
    echo x > 'ä ö/ü/run me'; chmod +x 'ä ö/ü/run me'; git add .
    git commit -q -m x; git rev-parse HEAD";
const EMPTY_TREE: &str = "empty=$(git mktree < /dev/null)
    t=$({ git ls-tree HEAD; printf '040000 tree %s\\tnothing\\n' $empty; } | git mktree)
    git commit-tree -p HEAD -m x $t";
const ZERO_PADDED: &str = "inner=$(git write-tree)
    t=$({ printf '040000 old\\0'; bytes $inner; } | raw tree)
    printf 'tree %s\\nparent %s\\nauthor %s\\ncommitter %s\\n\\nx\\n' $t $(git rev-parse HEAD) \
        \"$person\" \"$person\" | raw commit";
const GROUP_WRITABLE: &str = "blob=$(echo x | raw blob)
    t=$({ printf '100664 a\\0'; bytes $blob; } | raw tree)
    printf 'tree %s\\nparent %s\\nauthor %s\\ncommitter %s\\n\\nx\\n' $t $(git rev-parse HEAD) \
        \"$person\" \"$person\" | raw commit";
const SIGNED: &str =
    "printf 'tree %s\\nparent %s\\nauthor %s\\ncommitter %s\\ngpgsig %s\\n%s\\n\\nx\\n' \
        $(git write-tree) $(git rev-parse HEAD) \"$person\" \"$person\" \
        '-----BEGIN PGP SIGNATURE-----' ' abc=
 -----END PGP SIGNATURE-----' | raw commit";
const ODD_AUTHORS: &str = "parent=$(git rev-parse HEAD); tree=$(git write-tree)
    for author in 'A a@example.org> 1 +0000' 'A <a@example.org>> 1 +0000' '<a@example.org> 1 +0000' \
        'A<a@example.org> 1 +0000' 'A <a@example.org> 0001 +0000' 'A <a@example.org> 1 +051800' \
        'A <a@example.org> 99999999999999999999 +0000'; do
        parent=$(printf 'tree %s\\nparent %s\\nauthor %s\\ncommitter %s\\n\\nx\\n' \
            $tree $parent \"$author\" \"$person\" | raw commit)
    done; echo $parent";
const LONG_AND_TAGGED: &str = "for n in $(seq 200); do echo $n > n; git add n; git commit -q -m $n
    [ $((n % 10)) != 0 ] || git tag -a -m v$n v$n; done; git push -q --tags; git rev-parse HEAD";
const OCTOPUS: &str = "for b in x y z; do git checkout -q -b $b HEAD; echo $b > $b; git add .
    git commit -q -m $b; git checkout -q main; done
    git merge -q -m octopus x y z > /dev/null; git rev-parse HEAD";

/// A change to one file can be pushed: onto the branch as it was cloned, and when upstream's `main` was
/// replaced meanwhile, so that git sends all of the history.
#[rstest]
#[case::path(Kind::Path, "", "")]
#[case::path_replaced(Kind::Path, "", REPLACE_MAIN)]
#[case::http_shallow(Kind::Http, "--depth=1", "")]
#[case::http_replaced(Kind::Http, "", REPLACE_MAIN)]
#[tokio::test(flavor = "multi_thread")]
async fn a_real_history_can_be_worked_on(
    #[case] kind: Kind,
    #[case] clone: &str,
    #[case] meanwhile: &str,
    #[values(
        ATTRIBUTES,
        LFS,
        LONG_ATTRIBUTES,
        SUBMODULE,
        LINKS_AND_MODES,
        EMPTY_TREE,
        ZERO_PADDED,
        GROUP_WRITABLE,
        SIGNED,
        ODD_AUTHORS,
        LONG_AND_TAGGED,
        OCTOPUS
    )]
    history: &str,
) {
    let world = World::new(kind).await;
    upstream_commit(&world, history).await;
    let options: Vec<&str> = clone.split_whitespace().collect();
    let repo = world.clone_into("repo", &options).await;
    if !meanwhile.is_empty() {
        upstream_commit(&world, meanwhile).await;
    }
    world.git(&repo, "switch -qc work").await.ok();
    let pushed = world.commit(&repo, "new.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, pushed);
}

/// A tree with an entry that git would write into the clone's own `.git`, and a submodule whose name
/// leads there.
#[rstest]
#[case(
    "blob=$(echo x | git hash-object -w --stdin); printf '100644 .git\\0%b' \
    \"$(echo $blob | sed 's/../\\\\x&/g')\" | git hash-object -w -t tree --literally --stdin",
    "hasDotgit"
)]
#[case("blob=$(printf '[submodule \"../../x\"]\\n\\tpath = a\\n\\turl = ../b\\n' | git hash-object -w --stdin)
    printf '100644 blob %s\\t.gitmodules\\n' $blob | git mktree", "gitmodulesName")]
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_attacks_a_clone_is_refused(#[case] tree: &str, #[case] reason: &str) {
    let world = World::new(Kind::Http).await;
    let repo = world.clone_into("repo", &[]).await;
    let commit = script(
        &world,
        &repo,
        &format!("git commit-tree -p HEAD -m x $({tree}\n)"),
    )
    .await;
    let push = format!("push -q origin {commit}:refs/heads/work");
    world.git(&repo, &push).await.err();
    let refusals = world.refusals();
    assert!(refusals[0].contains(reason), "{refusals:?}");
    assert_eq!(world.forge_pushes(), 0);
}
