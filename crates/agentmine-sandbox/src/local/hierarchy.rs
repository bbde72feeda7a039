//! The hierarchies of cgroups that this process can see, and its own place in each.

use std::path::{Path, PathBuf};

use super::limits::Controller;

/// The group of a worker that made room for limited groups beside it.
pub(super) const WORKER: &str = "agentmine-worker";

/// A folder in which groups can perhaps be made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parent {
    pub(super) folder: PathBuf,
    pub(super) version: Version,
    pub(super) controllers: Vec<Controller>,
}

/// The version of the kernel's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// Who else makes groups on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manages {
    /// systemd, which takes the controllers from groups of version 2 that it has not delegated.
    Systemd,
    Nobody,
}

/// For each hierarchy the places to try, the best first.
pub(super) fn candidates(mounts: &str, own: &str, manages: Manages) -> Vec<Vec<Parent>> {
    let mut all = Vec::new();
    for mount in mounts.lines().filter_map(Mount::read) {
        let parent = |folder: PathBuf, controllers: Vec<Controller>| Parent {
            folder,
            version: mount.version,
            controllers,
        };
        let path = own.lines().find_map(|line| mount.own_path(line));
        let mut mine = mount.folder(path.unwrap_or("/"));
        if mine.ends_with(WORKER) {
            // An earlier look moved this process there.
            mine.pop();
        }
        if (mount.version, manages) == (Version::Two, Manages::Systemd) {
            let controllers = available(&mine);
            all.push(vec![parent(mine, controllers)]);
            continue;
        }
        let mut places = match mount.version {
            Version::One => vec![parent(mine, mount.controllers.clone())],
            Version::Two => {
                let beside = mine.parent().map(Path::to_owned);
                [Some(mine), beside.filter(|it| it.starts_with(&mount.point))]
                    .into_iter()
                    .flatten()
                    .map(|folder| {
                        let controllers = available(&folder);
                        parent(folder, controllers)
                    })
                    .collect()
            }
        };
        // As root, the top of the hierarchy is open too.
        places.push(parent(
            mount.point.clone(),
            match mount.version {
                Version::One => mount.controllers.clone(),
                Version::Two => available(&mount.point),
            },
        ));
        all.push(places);
    }
    all
}

/// The controllers that a group of version 2 has.
fn available(folder: &Path) -> Vec<Controller> {
    let names = std::fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
    let has = |controller: &Controller| names.split_whitespace().any(|it| it == controller.name());
    Controller::ALL.into_iter().filter(has).collect()
}

/// A mounted hierarchy.
struct Mount {
    point: PathBuf,
    root: String,
    version: Version,
    controllers: Vec<Controller>,
}

impl Mount {
    /// Reads a line of `/proc/self/mountinfo`.
    fn read(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let before: Vec<&str> = before.split(' ').collect();
        let mut after = after.split(' ');
        let version = match after.next()? {
            "cgroup" => Version::One,
            "cgroup2" => Version::Two,
            _ => return None,
        };
        let options: Vec<&str> = after.nth(1)?.split(',').collect();
        let has = |controller: &Controller| options.contains(&controller.name());
        let controllers: Vec<Controller> = Controller::ALL.into_iter().filter(has).collect();
        if version == Version::One && controllers.is_empty() {
            return None;
        }
        Some(Self {
            point: PathBuf::from(before.get(4)?),
            root: (*before.get(3)?).to_owned(),
            version,
            controllers,
        })
    }

    /// The path in a line of `/proc/self/cgroup`, if it is of this hierarchy.
    fn own_path<'a>(&self, line: &'a str) -> Option<&'a str> {
        let mut fields = line.splitn(3, ':');
        let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let own = match self.version {
            Version::One => names
                .split(',')
                .any(|name| self.controllers.iter().any(|it| it.name() == name)),
            Version::Two => number == "0" && names.is_empty(),
        };
        own.then_some(path)
    }

    /// The folder of a path in this hierarchy.
    fn folder(&self, path: &str) -> PathBuf {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        let below = Path::new(below.trim_start_matches('/'));
        // A path outside of the visible part of the hierarchy begins with `..`.
        match below.components().any(|part| part.as_os_str() == "..") {
            true => self.point.clone(),
            false => self.point.join(below),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(mounts: &str, own: &str) -> Vec<Vec<String>> {
        candidates(mounts, own, Manages::Nobody)
            .into_iter()
            .map(|places| {
                let shown = |it: Parent| it.folder.display().to_string();
                places.into_iter().map(shown).collect()
            })
            .collect()
    }

    #[test]
    fn places_are_found_in_both_versions() {
        let one = "36 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
                   37 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
                   35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
        assert_eq!(
            folders(one, "8:pids:/\n4:memory:/jobs/a\n0::/\n"),
            [
                vec!["/sys/fs/cgroup/pids/", "/sys/fs/cgroup/pids"],
                vec!["/sys/fs/cgroup/memory/jobs/a", "/sys/fs/cgroup/memory"],
            ]
        );
        let two = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            folders(two, "0::/user.slice/app.slice/a.scope\n"),
            [[
                "/sys/fs/cgroup/user.slice/app.slice/a.scope",
                "/sys/fs/cgroup/user.slice/app.slice",
                "/sys/fs/cgroup",
            ]]
        );
    }

    #[test]
    fn a_container_sees_its_own_part_of_the_hierarchy() {
        let mounts = "31 23 0:28 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        let inside = folders(mounts, "0::/docker/abc/worker\n");
        assert_eq!(inside[0][0], "/sys/fs/cgroup/worker");
        let outside = folders(mounts, "0::/../other\n");
        assert_eq!(outside[0][0], "/sys/fs/cgroup");
    }
}
