//! The rules of `command_executor` and `text_editor_mcp`.

use super::rules::{Rules, scheme_of, scheme_seen, shown};
use crate::config::executor::{
    CommandExecutor, Docker, McpServer, Network, PRESETS, TextEditorMcp,
};
use crate::config::outbound_proxy::OutboundProxy;
use crate::config::secret::Secret;
use crate::config::size::ByteSize;

/// The longest name of a built-in server: with `_execute_command` it makes 64 characters, the most that model APIs accept.
const MAX_SERVER_NAME: usize = 48;
/// Docker refuses less memory, and no workspace fits on less disk.
const SMALLEST: ByteSize = ByteSize::from_bytes(6 << 20);

impl Rules<'_> {
    pub(super) fn executor(&mut self, executor: &CommandExecutor) {
        self.server("command_executor.mcp_server", &executor.mcp_server);
        self.docker(&executor.docker);
        self.at_least("command_executor.clone.depth", executor.clone.depth, 1);
        let execution = &executor.execution;
        self.at_least(
            "command_executor.execution.timeout_seconds",
            execution.timeout_seconds,
            1,
        );
        let kept = u64::try_from(execution.max_output_size).unwrap_or(u64::MAX);
        self.at_least("command_executor.execution.max_output_size", kept, 1024);
        self.command_rules("denied_commands", &execution.denied_commands);
        self.command_rules("ask_commands", &execution.ask_commands);
        self.command_rules("allowed_commands", &execution.allowed_commands);
        let cleanup = &executor.cleanup;
        self.at_least(
            "command_executor.cleanup.interval_hours",
            cleanup.interval_hours,
            1,
        );
        self.at_least(
            "command_executor.cleanup.stale_threshold_hours",
            cleanup.stale_threshold_hours,
            1,
        );
    }

    fn command_rules(&mut self, list: &str, rules: &[String]) {
        for (at, rule) in rules.iter().enumerate() {
            let program = rule.split_whitespace().next().unwrap_or_default();
            let name = program.strip_suffix('*').unwrap_or(program);
            let fine = !name.is_empty() && !name.contains(['/', '*']);
            let key = format!("command_executor.execution.{list}.{at}");
            let expected = "a program without its path, and words that are among its arguments, such as \
                            `sudo` or `git push --force`";
            self.expect(&key, fine, || shown(rule), expected);
        }
    }

    pub(super) fn text_editor(&mut self, editor: &TextEditorMcp) {
        self.server("text_editor_mcp.mcp_server", &editor.mcp_server);
        let command = &editor.mcp_server.command;
        if editor.enabled && is_npm_editor(command) {
            self.fault(
                "text_editor_mcp.mcp_server.command",
                shown(&command.join(" ")),
                "a program that exists: there is no npm package of that name any more",
            )
            .hint = Some("remove `command`: AgentMine's own text editor is the default".to_owned());
        }
    }

    fn server(&mut self, key: &str, server: &McpServer) {
        // Tools are named `server:tool`, so the name itself has no colon.
        let fine = (1..=MAX_SERVER_NAME).contains(&server.name.len())
            && server
                .name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        let expected = format!("1 to {MAX_SERVER_NAME} letters, digits, `-` and `_`");
        self.expect(
            &format!("{key}.name"),
            fine,
            || shown(&server.name),
            &expected,
        );
        let fine = server
            .command
            .first()
            .is_some_and(|program| !program.trim().is_empty());
        let expected = "a program and its arguments";
        self.expect(
            &format!("{key}.command"),
            fine,
            || "no program".into(),
            expected,
        );
    }

    fn docker(&mut self, docker: &Docker) {
        const KEY: &str = "command_executor.docker";
        if let Some(host) = &docker.host {
            let fine = scheme_of(host).is_some_and(|s| ["unix", "tcp", "http", "ssh"].contains(&s));
            let expected = "`unix://…`, `tcp://…`, `http://…` or `ssh://…`";
            self.expect(&format!("{KEY}.host"), fine, || scheme_seen(host), expected);
        }
        self.not_blank(&format!("{KEY}.base_image"), &docker.base_image);
        for (at, image) in docker.allowed_images.iter().enumerate() {
            let stem = image.strip_suffix('*').unwrap_or(image);
            let fine = !image.trim().is_empty() && !stem.contains('*');
            let key = format!("{KEY}.allowed_images.{at}");
            self.expect(
                &key,
                fine,
                || shown(image),
                "an image, with `*` at its end at most",
            );
        }
        if let Some(runtime) = &docker.runtime {
            self.not_blank(&format!("{KEY}.runtime"), runtime);
        }
        self.user(&docker.user);
        self.at_least(&format!("{KEY}.pids_limit"), docker.pids_limit, 16);
        self.at_least(
            &format!("{KEY}.api_timeout_seconds"),
            docker.api_timeout_seconds,
            1,
        );
        let limits = &docker.resources;
        let fine = limits.cpu_limit.is_finite() && limits.cpu_limit > 0.0;
        let seen = || format!("the number {}", limits.cpu_limit);
        self.expect(
            &format!("{KEY}.resources.cpu_limit"),
            fine,
            seen,
            "more than 0 cores",
        );
        for (name, limit) in [
            ("memory_limit", limits.memory_limit),
            ("disk_limit", limits.disk_limit),
        ] {
            let key = format!("{KEY}.resources.{name}");
            let seen = || format!("`{limit}`");
            let expected = format!("a size of at least {SMALLEST}");
            self.expect(&key, limit >= SMALLEST, seen, &expected);
        }
        self.network(&docker.network);
    }

    fn user(&mut self, user: &str) {
        let (uid, gid) = user.split_once(':').unwrap_or((user, user));
        let number = |text: &str| text.parse::<u32>().is_ok_and(|id| id != 0);
        self.expect(
            "command_executor.docker.user",
            number(uid) && number(gid),
            || shown(user),
            "`UID:GID` as numbers, neither of them 0",
        );
    }

    fn network(&mut self, network: &Network) {
        const KEY: &str = "command_executor.docker.network";
        for (at, form) in network.allowed_domains.iter().enumerate() {
            let expected = "a name such as `example.com`, `*.example.com`, or `preset:NAME`";
            let key = format!("{KEY}.allowed_domains.{at}");
            let fine = match form.strip_prefix("preset:") {
                Some(name) => PRESETS.contains(&name) || network.presets.contains_key(name),
                None => is_host(form.strip_prefix("*.").unwrap_or(form)),
            };
            if !fine {
                self.fault(&key, shown(form), expected).hint =
                    Some(format!("the presets are {}", PRESETS.join(", ")));
            }
        }
        for (name, hosts) in &network.presets {
            for (at, form) in hosts.iter().enumerate() {
                let key = format!("{KEY}.presets.{name}.{at}");
                let fine = is_host(form.strip_prefix("*.").unwrap_or(form));
                let expected = "a name such as `example.com` or `*.example.com`";
                self.expect(&key, fine, || shown(form), expected);
            }
        }
        if let Some(proxy) = &network.proxy {
            let key = format!("{KEY}.proxy");
            // That of a variable which is not set is known already.
            let is_known = self.faults.iter().any(|fault| fault.key == key);
            let fine = is_known || OutboundProxy::parse(proxy).is_some();
            let seen = || match scheme_of(proxy.expose()) {
                Some("http") => "an `http://` URL of another form".to_owned(),
                Some(_) | None => scheme_seen(proxy.expose()),
            };
            self.expect(&key, fine, seen, OutboundProxy::FORM);
        }
        self.registry_credentials(network);
        self.push(&network.push);
        for (at, form) in network.allowed_private.iter().enumerate() {
            let fine = form.rsplit_once(':').is_some_and(|(host, port)| {
                let bare = host.trim_start_matches('[').trim_end_matches(']');
                let host_fits = is_host(host) || bare.parse::<std::net::IpAddr>().is_ok();
                host_fits && port.parse::<u16>().is_ok_and(|port| port != 0)
            });
            let key = format!("{KEY}.allowed_private.{at}");
            self.expect(&key, fine, || shown(form), "`host:port`");
        }
    }
}

impl Rules<'_> {
    fn registry_credentials(&mut self, network: &Network) {
        for (at, entry) in network.registry_credentials.iter().enumerate() {
            let key = format!("command_executor.docker.network.registry_credentials.{at}");
            let (host, port) = match entry.host.rsplit_once(':') {
                Some((host, port)) => (host, port),
                None => (entry.host.as_str(), "443"),
            };
            let fine = is_host(host) && port.parse::<u16>().is_ok_and(|port| port != 0);
            let expected = "a host such as `registry.example.com`, or `host:port`";
            self.expect(
                &format!("{key}.host"),
                fine,
                || shown(&entry.host),
                expected,
            );
            for (at, path) in entry.paths.iter().enumerate() {
                let is_plain = |part: &str| !matches!(part, "." | "..");
                let fine = path.starts_with('/')
                    && path
                        .chars()
                        .all(|c| matches!(c, '!'..='~') && !"?#%\\;".contains(c))
                    && path.split('/').all(is_plain);
                let expected = "a path such as `/artifactory/api/npm/team/`";
                self.expect(&format!("{key}.paths.{at}"), fine, || shown(path), expected);
            }
            let expected = "either `authorization` or `token`";
            match (&entry.authorization, &entry.token) {
                (Some(value), None) => self.header_value(&format!("{key}.authorization"), value),
                (None, Some(value)) => self.header_value(&format!("{key}.token"), value),
                (Some(_), Some(_)) => drop(self.fault(&key, "both of them", expected)),
                (None, None) => drop(self.fault(&key, "neither of them", expected)),
            }
        }
    }

    fn header_value(&mut self, key: &str, value: &Secret) {
        let text = value.expose().trim();
        let fine = !text.is_empty() && text.chars().all(|c| matches!(c, ' '..='~'));
        let seen = || "an empty text, or one with a character that a header cannot have".to_owned();
        self.expect(key, fine, seen, "printable ASCII characters");
    }
}

/// Whether a command is the specification's own (spec 000 §4.2.1), which cannot start.
fn is_npm_editor(command: &[String]) -> bool {
    let name = |word: &String| word.rsplit('/').next().unwrap_or_default().to_owned();
    let runs_packages = command
        .first()
        .map(name)
        .is_some_and(|program| program == "npx");
    let package = |word: &String| name(word).split('@').next() == Some("mcp-server-text-editor");
    runs_packages && command.iter().skip(1).any(package)
}

/// Whether a text has the form of a host name.
fn is_host(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part.len() <= 63
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part
                .chars()
                .all(|c| c.is_alphanumeric() || c == '-' || c == '_')
    };
    text.len() <= 253 && text.split('.').all(part)
}
