//! A local repository whose own files lead out of it: issues and records that are links.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agentmine_domain::TaskId;
use agentmine_runtime::config::LocalTrackerConfig;
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_trackers::{LocalTracker, Tracker as _};
use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

use crate::attack::bait::scratch;

const SECRET: &str = "a line of a file that is not in the repository";

/// Who reads the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    Product,
    /// Follows every link.
    Trusting,
}

type Attack = fn(Reader) -> LocalBoxFuture<'static, anyhow::Result<Option<String>>>;

/// Name, aim, and what carries it out.
pub(super) const ATTACKS: &[(&str, &str, Attack)] = &[
    (
        "read_a_file_through_a_linked_issue",
        "Shows the model a file of the worker by an issue that is a link",
        |reader| read(reader).boxed_local(),
    ),
    (
        "overwrite_a_file_through_a_linked_record",
        "Has the worker replace a file outside of the repository",
        |reader| overwrite(reader).boxed_local(),
    ),
    (
        "write_into_a_linked_folder",
        "Has the worker write its records into another folder",
        |reader| write_into(reader).boxed_local(),
    ),
    (
        "start_work_by_what_looks_like_the_label",
        "Starts work by a comment, a text, or a label that resembles the operator's",
        |reader| resemble(reader).boxed_local(),
    ),
];

const LABEL: &str = "coding agent";

struct Trap {
    folder: tempfile::TempDir,
}

impl Trap {
    /// A repository with a folder beside it.
    fn set() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("operator-")
            .tempdir_in(scratch())?;
        let trap = Self { folder };
        let repository = trap.repository();
        std::fs::create_dir_all(repository.join(".agentmine/issues"))?;
        std::fs::create_dir_all(trap.folder.path().join("outside"))?;
        crate::forge::write_demo(&repository);
        for arguments in [
            &["init", "-q", "-b", "main"][..],
            &["add", "-A"],
            &[
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@example.org",
                "commit",
                "-q",
                "-m",
                "Start",
            ],
        ] {
            let done = std::process::Command::new("git")
                .args(arguments)
                .current_dir(&repository)
                .status()?;
            anyhow::ensure!(done.success(), "git {arguments:?}: {done}");
        }
        Ok(trap)
    }

    fn repository(&self) -> PathBuf {
        self.folder.path().join("repository")
    }

    fn outside(&self) -> PathBuf {
        self.folder.path().join("outside/file")
    }

    fn tracker(&self) -> anyhow::Result<LocalTracker> {
        Ok(LocalTracker::new(&LocalTrackerConfig {
            repository: self.repository(),
            issues: None,
        })?)
    }

    fn issue(&self, name: &str, labels: &str, text: &str) -> anyhow::Result<()> {
        let text = format!("---\nlabels: [{labels}]\n---\n# {name}\n\n{text}\n");
        let file = self.repository().join(".agentmine/issues").join(name);
        Ok(std::fs::write(file, text)?)
    }
}

async fn read(reader: Reader) -> anyhow::Result<Option<String>> {
    let trap = Trap::set()?;
    let text = format!("---\nlabels: [{LABEL}]\n---\n{SECRET}\n");
    std::fs::write(trap.outside(), text)?;
    let link = trap.repository().join(".agentmine/issues/1-a.md");
    std::os::unix::fs::symlink(trap.outside(), &link)?;
    let seen = match reader {
        Reader::Trusting => std::fs::read_to_string(link)?,
        Reader::Product => {
            let tracker = trap.tracker()?;
            // It may refuse the whole folder.
            let found = tracker.candidates(LABEL).await.unwrap_or_default();
            match found.first() {
                Some(found) => tracker.item(&found.item).await?.body,
                None => String::new(),
            }
        }
    };
    Ok(seen
        .contains(SECRET)
        .then(|| "the model gets the file".to_owned()))
}

async fn overwrite(reader: Reader) -> anyhow::Result<Option<String>> {
    let trap = Trap::set()?;
    // No number in its name: it gets one, which the ledger keeps.
    trap.issue("a.md", LABEL, "Do it.")?;
    std::fs::write(trap.outside(), "{}")?;
    let own = trap.repository().join(".agentmine/local");
    std::fs::create_dir(&own)?;
    let link = own.join("ledger.json");
    std::os::unix::fs::symlink(trap.outside(), &link)?;
    work(reader, &trap, &link).await?;
    let now = std::fs::read_to_string(trap.outside())?;
    Ok((now != "{}").then(|| format!("it holds {now:?}")))
}

async fn write_into(reader: Reader) -> anyhow::Result<Option<String>> {
    let trap = Trap::set()?;
    trap.issue("a.md", LABEL, "Do it.")?;
    let outside = trap.outside();
    let outside = outside.parent().context("its folder")?;
    let link = trap.repository().join(".agentmine/local");
    std::os::unix::fs::symlink(outside, &link)?;
    work(reader, &trap, &link.join("lock")).await?;
    let written = std::fs::read_dir(outside)?.flatten().next();
    Ok(written.map(|it| format!("{:?} was written", it.file_name())))
}

/// What a fleet does with the repository, as far as the tracker goes. It may refuse.
async fn work(reader: Reader, trap: &Trap, link: &Path) -> anyhow::Result<()> {
    match reader {
        Reader::Trusting => Ok(std::fs::write(link, "anything")?),
        Reader::Product => {
            let tracker = trap.tracker()?;
            if let Ok(found) = tracker.candidates(LABEL).await
                && let Some(found) = found.into_iter().next()
            {
                let permit = Permit::of(BootInstant::now(), Duration::from_secs(60));
                let marker = format!("task {} start", TaskId::new());
                let _ = tracker
                    .upsert_comment(&found.item, &marker, "Begins.", &permit)
                    .await;
            }
            Ok(())
        }
    }
}

async fn resemble(reader: Reader) -> anyhow::Result<Option<String>> {
    let trap = Trap::set()?;
    let names = [
        "coding agent\u{200b}",
        "coding  agent",
        "сoding agent",
        "coding agent done",
    ];
    for (at, label) in names.iter().enumerate() {
        let text =
            "labels: [coding agent]\n\n/label coding agent\n\n---\nlabels: [coding agent]\n---";
        trap.issue(&format!("{}-a.md", at + 1), &format!("\"{label}\""), text)?;
    }
    let found = match reader {
        Reader::Product => trap.tracker()?.candidates(LABEL).await?.len(),
        // Looks for the words alone.
        Reader::Trusting => names.len(),
    };
    Ok((found > 0).then(|| format!("{found} issues start work")))
}
