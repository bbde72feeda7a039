use super::*;

/// Characters that look random and are the same each time.
fn noise(alphabet: &str, length: usize) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    let mut state = 0x2545_f491_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        letters[(state % letters.len() as u64) as usize]
    })
    .take(length)
    .collect()
}

const MIXED: &str = "ABCDEFGHJKLMNPQRSTUVWXYZabdcefghijkmnopqrstuvwxyz23456789";
const HEX: &str = "9f8e7d6c5b4a3210";
const BASE32: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn rules(path: &str, text: &str) -> Vec<&'static str> {
    scan(path, text.as_bytes())
        .iter()
        .map(|it| it.rule)
        .collect()
}

#[test]
fn known_formats_are_found_with_their_line() {
    let mixed = |length| noise(MIXED, length);
    for (rule, value) in [
        ("github-token", format!("ghp_{}", mixed(36))),
        (
            "github-token",
            format!("github_pat_{}_{}", mixed(22), mixed(59)),
        ),
        ("gitlab-token", format!("glpat-{}", mixed(20))),
        (
            "slack-token",
            format!("xoxb-1122334455-9988776655-{}", mixed(24)),
        ),
        (
            "slack-webhook",
            format!(
                "https://hooks.slack.com/services/T0AB12CD3/B0XY98ZW7/{}",
                mixed(24)
            ),
        ),
        ("aws-access-key", format!("AKIA{}", noise(BASE32, 16))),
        (
            "aws-secret-key",
            format!("aws_secret_access_key = {}", mixed(40)),
        ),
        ("gcp-api-key", format!("AIza{}", mixed(35))),
        ("gcp-oauth", format!("GOCSPX-{}", mixed(28))),
        ("azure-storage-key", format!("AccountKey={}==", mixed(86))),
        ("stripe-key", format!("sk_live_{}", mixed(24))),
        ("openai-key", format!("sk-proj-{}", mixed(60))),
        (
            "openai-key",
            format!("sk-{}T3BlbkFJ{}", mixed(20), mixed(20)),
        ),
        ("anthropic-key", format!("sk-ant-api03-{}", mixed(90))),
        ("npm-token", format!("npm_{}", mixed(36))),
        ("npm-token", format!("//h/:_authToken={}", mixed(36))),
        ("pypi-token", format!("pypi-AgE{}", mixed(60))),
        ("rubygems-token", format!("rubygems_{}", noise(HEX, 48))),
        ("sendgrid-key", format!("SG.{}.{}", mixed(22), mixed(43))),
        (
            "private-key",
            format!("-----BEGIN RSA PRIVATE KEY-----\n{}", mixed(64)),
        ),
        (
            "private-key",
            format!("k = \"-----BEGIN PRIVATE KEY-----\\n{}", mixed(64)),
        ),
        (
            "private-key",
            format!(
                "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES\n\n{}",
                mixed(64)
            ),
        ),
        (
            "jwt",
            format!("eyJ{}.eyJ{}.{}", mixed(20), mixed(40), mixed(43)),
        ),
        (
            "url-password",
            format!("postgres://app:{}@db.corp.net/x", mixed(16)),
        ),
        ("assigned-secret", format!("api_key: '{}'", mixed(32))),
        (
            "assigned-secret",
            format!("\"clientSecret\": \"{}\"", noise(HEX, 40)),
        ),
        (
            "assigned-variable",
            format!("export SESSION_SECRET={}", mixed(32)),
        ),
    ] {
        let before = "first line\nsecond line\n";
        let text = format!("{before}{value}\nlast\n");
        let found = scan("config/settings.txt", text.as_bytes());
        let expected = Finding { line: 3, rule };
        assert!(found.contains(&expected), "{rule}: {value} gave {found:?}");
    }
}

#[test]
fn a_search_reports_each_line_and_ends_when_it_is_over() {
    let token = format!("ghp_{}", noise(MIXED, 36));
    let key = format!("api_key: '{}'", noise(MIXED, 32));
    let text = format!("{token} {token}\n{key}\n").repeat(500);
    let found = scan("settings.txt", text.as_bytes());
    let lines = found.iter().map(|finding| finding.line);
    assert!(lines.eq(1..=1000), "{found:?}");
    let of = |is_sought: fn(&str) -> bool, most: usize| {
        search("settings.txt", text.as_bytes(), is_sought, |found| {
            found >= most
        })
    };
    assert_eq!(of(|_| true, 100).len(), 100);
    let others = of(|rule| rule != "github-token", 700);
    assert_eq!(others.len(), 500);
    assert!(others.iter().all(|it| it.rule == "assigned-secret"));
}

#[test]
fn a_log_is_shown_without_its_secrets_whatever_their_number() {
    let token = format!("ghp_{}", noise(MIXED, 36));
    let shown = without_secrets(&format!("a\n{token}\n").repeat(300));
    assert_eq!(shown, "a\n(a line was removed: github-token)\n".repeat(300));
}

#[test]
fn examples_and_ordinary_code_are_not_secrets() {
    for text in [
        "aws_access_key_id = AKIAIOSFODNN7EXAMPLE",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "GITHUB_TOKEN=ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "if text.contains(\"-----BEGIN RSA PRIVATE KEY-----\") {",
        "postgres://postgres:postgres@localhost:5432/app",
        "postgres://user:correct9Horse@db:5432/app",
        "https://user:password@example.com/repo.git",
        "https://{user}:{password}@git.corp.net/",
        "token: ${{ secrets.GITHUB_TOKEN }}",
        "api_key = os.environ['SERVICE_API_KEY_FOR_PRODUCTION']",
        "secretName: 'my-application-tls-certificate-2024'",
        "password = \"correct-horse-battery-staple-2\"",
        "token = \"AbstractSyntaxTreeNodeVisitor2\"",
        "\"tokenizer\": \"sentencepiece/Llama-2-7b-chat-hf\"",
        "API_KEY=changeme-changeme-changeme-1234567",
        "secret: '5f2b6c1e-1f0a-4c9b-9a57-0c3d2b1a4e5f'",
        "integrity: sha512-Q1w2E3r4T5y6U7i8O9p0A1s2D3f4G5h6J7k8L9z0X1c2V3b4N5m6Q7w8E9r0T1y2U3i4O5p6A7s8D9f0G1h2J3k4==",
    ] {
        assert_eq!(rules("src/main.py", text), Vec::<&str>::new(), "{text}");
    }
    let made_up = format!("api_key = '{}'", noise(MIXED, 32));
    assert_eq!(rules("tests/test_client.py", &made_up), Vec::<&str>::new());
    assert_eq!(rules("yarn.lock", &made_up), Vec::<&str>::new());
    assert_eq!(rules("src/client.py", &made_up), ["assigned-secret"]);
}

/// `SCANNED=FOLDER cargo test -p agentmine-gateway -- --ignored files_of_a_folder` lists what the rules find in
/// the files of a folder, to measure false positives.
#[test]
#[ignore = "needs a folder"]
fn files_of_a_folder() {
    let root = std::path::PathBuf::from(std::env::var_os("SCANNED").unwrap());
    let (mut folders, mut files, mut bytes, mut found) = (vec![root.clone()], 0, 0, 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let (path, kind) = entry
                .map(|it| (it.path(), it.file_type().unwrap()))
                .unwrap();
            if kind.is_dir() && !path.ends_with(".git") {
                folders.push(path);
            } else if kind.is_file() {
                let shown = path.strip_prefix(&root).unwrap().display().to_string();
                let text = std::fs::read(&path).unwrap();
                files += 1;
                bytes += text.len();
                for Finding { line, rule } in scan(&shown, &text) {
                    found += 1;
                    println!("{rule}\t{shown}:{line}");
                }
            }
        }
    }
    println!("{files} files, {bytes} bytes, {found} findings");
}

#[test]
fn the_configuration_knows_each_rule() {
    let formats = rules::all().iter().map(|rule| rule.name);
    let all: std::collections::BTreeSet<&str> = formats.chain(entropy::NAMES).collect();
    let known = agentmine_runtime::config::SECRET_RULES
        .into_iter()
        .collect();
    assert_eq!(all, known);
}
