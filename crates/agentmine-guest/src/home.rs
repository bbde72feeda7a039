//! The agent's home folder: settings for tools that do not read the proxy from the environment.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The home folder of every command.
pub(crate) fn of(root: &Path) -> PathBuf {
    root.join("tmp/home")
}

/// Folders in the home folder that tools install programs into for a user who is not root: pip, uv and npm
/// (with the prefix of `environment`), go, cargo.
pub(crate) fn program_folders(home: &Path) -> [PathBuf; 3] {
    [".local/bin", "go/bin", ".cargo/bin"].map(|folder| home.join(folder))
}

/// Creates the folder with the settings of Maven and Gradle, whose JVMs ignore `HTTP_PROXY`. Settings that
/// exist already are kept.
pub(crate) fn prepare(home: &Path, web_port: u16) -> io::Result<()> {
    let maven = ["http", "https"]
        .map(|protocol| {
            format!(
                "<proxy><id>{protocol}</id><active>true</active><protocol>{protocol}</protocol>\
                 <host>127.0.0.1</host><port>{web_port}</port>\
                 <nonProxyHosts>localhost|127.0.0.1</nonProxyHosts></proxy>"
            )
        })
        .concat();
    let gradle = ["http", "https"]
        .map(|protocol| {
            format!(
                "systemProp.{protocol}.proxyHost=127.0.0.1\nsystemProp.{protocol}.proxyPort={web_port}\n\
                 systemProp.{protocol}.nonProxyHosts=localhost|127.0.0.1\n"
            )
        })
        .concat();
    std::fs::create_dir_all(home)?;
    write_new(
        &home.join(".m2/settings.xml"),
        &format!("<settings><proxies>{maven}</proxies></settings>\n"),
    )?;
    write_new(&home.join(".gradle/gradle.properties"), &gradle)
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maven_and_gradle_find_the_proxy_and_own_settings_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        prepare(&home, 8080).unwrap();
        let settings = home.join(".m2/settings.xml");
        assert!(
            std::fs::read_to_string(&settings)
                .unwrap()
                .contains("<port>8080</port>")
        );
        let gradle = std::fs::read_to_string(home.join(".gradle/gradle.properties")).unwrap();
        assert!(
            gradle.contains("systemProp.https.proxyPort=8080\n"),
            "{gradle}"
        );
        std::fs::write(&settings, "own").unwrap();
        prepare(&home, 8081).unwrap();
        assert_eq!(std::fs::read_to_string(&settings).unwrap(), "own");
    }
}
