//! The environment of every command: nothing from the worker, and what tools need behind the proxies.

use std::collections::BTreeMap;
use std::path::Path;

use crate::args::Options;
use crate::home;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The hosts that are the sandbox itself, among them what a server that listens on all addresses prints as its own.
/// Without `::1`: httpx before 0.24.1 fails at each start where an address of IP version 6 is listed, and later versions
/// where it has brackets.
const NO_PROXY: &str = "127.0.0.1,localhost,0.0.0.0,sandbox";

/// The environment that every command gets, before its own variables are added.
pub(crate) fn base(options: &Options, web_port: u16) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    if options.inherit_env {
        env.extend(
            std::env::vars_os().filter_map(|(key, value)| {
                Some((key.into_string().ok()?, value.into_string().ok()?))
            }),
        );
        without_maven_folder(&mut env);
    }
    let path = options.path.clone().or_else(|| env.get("PATH").cloned());
    let path = path.unwrap_or_else(|| PATH.into());
    let own = std::env::current_exe().ok();
    let own = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let home = home::of(&options.root);
    let path = own
        .into_iter()
        .chain(home::program_folders(&home))
        .map(|folder| format!("{}:", folder.display()))
        .collect::<String>()
        + &path;

    let root = options.root.display();
    let proxy = format!("http://127.0.0.1:{web_port}");
    for (key, value) in [
        ("PATH", path.as_str()),
        ("HOME", &home.to_string_lossy()),
        ("TMPDIR", &format!("{root}/tmp")),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("SHELL", "/bin/sh"),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        ("PAGER", "cat"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_PAGER", "cat"),
        // Without an editor, `git rebase --continue` fails. This one keeps the message that git proposes. What a command names
        // itself precedes it: `GIT_EDITOR`, `-c core.editor`.
        ("EDITOR", "true"),
        // Nothing serves the objects of Git LFS here. Their pointers are what is cloned, and pushed again.
        ("GIT_LFS_SKIP_SMUDGE", "1"),
        ("HTTP_PROXY", &proxy),
        ("HTTPS_PROXY", &proxy),
        ("http_proxy", &proxy),
        ("https_proxy", &proxy),
        ("NO_PROXY", NO_PROXY),
        ("no_proxy", NO_PROXY),
        ("DEBIAN_FRONTEND", "noninteractive"),
        ("NO_UPDATE_NOTIFIER", "1"),
        // Yarn 2 and later reads only these.
        ("YARN_HTTP_PROXY", &proxy),
        ("YARN_HTTPS_PROXY", &proxy),
        // What fetches Electron, when its package is installed, uses a proxy only on request.
        ("ELECTRON_GET_USE_PROXY", "true"),
        // Where Corepack starts the package manager, its versions 0.26 to 0.33 would write into each package.json that names none.
        ("COREPACK_ENABLE_AUTO_PIN", "0"),
        // The folders of the system are not writable.
        ("npm_config_prefix", &home.join(".local").to_string_lossy()),
        ("BUNDLE_PATH", &home.join(".bundle/gems").to_string_lossy()),
        // A JVM takes the home folder from the user database.
        ("MAVEN_OPTS", &format!("-Duser.home={}", home.display())),
        ("GRADLE_OPTS", &format!("-Duser.home={}", home.display())),
        ("GRADLE_USER_HOME", &home.join(".gradle").to_string_lossy()),
        ("npm_config_update_notifier", "false"),
        ("npm_config_fund", "false"),
        ("npm_config_audit", "false"),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
        // Debian's pip refuses to install for a user; here there is nothing to protect.
        ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
        ("PIP_NO_INPUT", "1"),
        ("AGENTMINE_WORKSPACE", &root.to_string()),
    ] {
        env.insert(key.to_owned(), value.to_owned());
    }
    env.extend(options.env.iter().cloned());
    env
}

/// Removes the folder that the official images of Maven name. Only their own entry point reads it there; a project's wrapper
/// (`mvnw`) takes it for the first goal, and every build ends with "Unknown lifecycle phase".
fn without_maven_folder(env: &mut BTreeMap<String, String>) {
    const NAME: &str = "MAVEN_CONFIG";
    if env.get(NAME).is_some_and(|value| value.starts_with('/')) {
        env.remove(NAME);
    }
}

/// The folder with the certificate authority of the session, written by `agentmine-sandbox` (`trust.sh`) where
/// package registries are read through the gateway.
const TLS: &str = ".agentmine/tls";

/// Makes a command's programs trust that authority, where there is one.
pub(crate) fn trust(env: &mut BTreeMap<String, String>, root: &Path) {
    let folder = home::of(root).join(TLS);
    let file = |name: &str| {
        let path = folder.join(name);
        path.is_file().then(|| path.display().to_string())
    };
    if let (Some(bundle), Some(session)) = (file("bundle.pem"), file("session.pem")) {
        for name in [
            "SSL_CERT_FILE",
            "CURL_CA_BUNDLE",
            "GIT_SSL_CAINFO",
            "PIP_CERT",
            "REQUESTS_CA_BUNDLE",
            "CARGO_HTTP_CAINFO",
            "YARN_HTTPS_CA_FILE_PATH",
            // Yarn 1 and npm: instead of Node's own roots.
            "npm_config_cafile",
            "BUNDLE_SSL_CA_CERT",
            "DENO_CERT",
        ] {
            env.insert(name.to_owned(), bundle.clone());
        }
        // Besides Node's own roots.
        env.insert("NODE_EXTRA_CA_CERTS".to_owned(), session);
    }
    if let Some(store) = file("java.jks") {
        for name in ["MAVEN_OPTS", "GRADLE_OPTS"] {
            let options = env.entry(name.to_owned()).or_default();
            *options = format!("{options} -Djavax.net.ssl.trustStore={store}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_of_the_session_is_trusted_where_there_is_one() {
        let root = tempfile::tempdir().unwrap();
        let options = Options {
            root: root.path().to_owned(),
            ..Options::default()
        };
        let plain = base(&options, 8080);
        let mut env = plain.clone();
        trust(&mut env, root.path());
        assert_eq!(env, plain);
        let folder = home::of(root.path()).join(TLS);
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["bundle.pem", "session.pem", "java.jks"] {
            std::fs::write(folder.join(name), "x").unwrap();
        }
        trust(&mut env, root.path());
        let path = |name: &str| folder.join(name).display().to_string();
        assert_eq!(env["SSL_CERT_FILE"], path("bundle.pem"));
        assert_eq!(env["NODE_EXTRA_CA_CERTS"], path("session.pem"));
        assert!(env["MAVEN_OPTS"].starts_with("-Duser.home="));
        assert!(env["MAVEN_OPTS"].ends_with(&path("java.jks")));
    }

    #[test]
    fn a_rebase_with_a_conflict_continues_without_a_person() {
        let folder = tempfile::tempdir().unwrap();
        let mut env = base(&Options::default(), 8080);
        env.insert("PATH".into(), std::env::var("PATH").unwrap());
        let script = "git init -q -b main . && git config user.name a && git config user.email a@b \
             && echo 1 > f && git add f && git commit -qm base && git checkout -qb work \
             && echo 2 > f && git commit -qam ours && git checkout -q main \
             && echo 3 > f && git commit -qam theirs && git checkout -q work \
             && ! git rebase -q main && echo 4 > f && git add f && git rebase --continue && git log --format=%s";
        let output = std::process::Command::new("/bin/sh")
            .args(["-c", script])
            .current_dir(folder.path())
            .env_clear()
            .envs(&env)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let log = String::from_utf8(output.stdout).unwrap();
        assert!(log.ends_with("ours\ntheirs\nbase\n"), "{log}");
    }

    #[test]
    fn the_guests_own_environment_is_not_passed_on_by_default() {
        let env = base(&Options::default(), 8080);
        assert!(!env.keys().any(|key| key.starts_with("CARGO")));
        assert_eq!(env["HTTPS_PROXY"], "http://127.0.0.1:8080");
        assert_eq!(env["HOME"], "/workspace/tmp/home");
        assert!(env["PATH"].ends_with(PATH));
        // What `pip install` puts there is found.
        assert!(env["PATH"].contains(&format!("{}/.local/bin:", env["HOME"])));
        assert_eq!(env["ELECTRON_GET_USE_PROXY"], "true");
        assert_eq!(env["COREPACK_ENABLE_AUTO_PIN"], "0");
    }

    #[test]
    fn requests_to_the_sandbox_itself_use_no_proxy() {
        let env = base(&Options::default(), 8080);
        for name in ["NO_PROXY", "no_proxy"] {
            for host in ["127.0.0.1", "localhost", "0.0.0.0", "sandbox"] {
                assert!(env[name].split(',').any(|it| it == host), "{name}: {host}");
            }
            assert!(!env[name].contains(':'), "httpx fails: {}", env[name]);
        }
    }

    #[test]
    fn a_folder_in_the_environment_of_an_image_is_no_goal_of_maven() {
        for (value, kept) in [("/root/.m2", false), ("-B -ntp", true)] {
            let mut env = BTreeMap::from([("MAVEN_CONFIG".to_owned(), value.to_owned())]);
            without_maven_folder(&mut env);
            assert_eq!(env.contains_key("MAVEN_CONFIG"), kept, "{value}");
        }
    }
}
