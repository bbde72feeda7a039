//! The built-in rules: which programs and arguments are refused or asked for.

use crate::programs::listed;
use crate::rule::short_options;
use crate::word::Value;
use crate::{ShellVerdict, ask, deny};

/// Refused whatever the arguments.
const DENIED: &str = "shutdown reboot halt poweroff format mkfs mke2fs mkswap mkdosfs mkntfs fdisk sfdisk \
    cfdisk gdisk sgdisk parted wipefs blkdiscard killall5 kexec hdparm cryptsetup";
/// Asked for whatever the arguments.
const ASKED: &str = "sudo su doas pkexec runuser chroot mount umount insmod modprobe rmmod iptables nft ufw \
    useradd userdel usermod groupadd groupdel passwd chpasswd visudo crontab at shred killall pkill \
    swapoff swapon sysctl losetup update-alternatives docker podman";
/// Package managers, asked for unless they only look.
const PACKAGES: &str = "apt apt-get aptitude yum dnf microdnf zypper pacman apk brew snap flatpak dpkg rpm \
    emerge port nix-env";
const LOOKING: &str = "list search show info policy help depends rdepends madison provides repolist \
    --version --help -h";
/// Package managers of languages with the commands that change more than the project. None: all do.
const INSTALLERS: [(&str, &str); 14] = [
    ("pip", "install uninstall"),
    ("pip3", "install uninstall"),
    ("pipx", "install uninstall upgrade"),
    ("gem", "install uninstall"),
    ("cpan", ""),
    ("cpanm", ""),
    ("cargo", "install uninstall publish"),
    ("go", "install"),
    ("conda", "install remove update"),
    ("mamba", "install remove update"),
    ("luarocks", "install remove"),
    ("twine", "upload"),
    ("composer", "global"),
    ("uv", "publish"),
];
/// Commands of `systemctl` that end or suspend the system, and those that only look.
const ENDING: &str = "poweroff reboot halt kexec suspend hibernate hybrid-sleep rescue emergency \
    soft-reboot exit isolate";
const STATUS: &str = "status show cat is-active is-enabled list-units";
/// Tests of `find` that choose files.
const CHOOSING: &str =
    "-name -iname -path -ipath -regex -mtime -mmin -size -empty -newer -wholename -atime";
/// Folders whose loss is the loss of the system or of all files of a user.
const FOLDERS: &str = "/ /bin /boot /dev /etc /home /lib /lib32 /lib64 /media /mnt /opt /proc /root /run \
    /sbin /srv /sys /usr /usr/bin /usr/lib /usr/local /var /var/lib /Users";
/// Beginnings of the paths of disks, memory and switches of the kernel.
const DEVICES: &str = "/dev/sd /dev/hd /dev/vd /dev/xvd /dev/nvme /dev/mmcblk /dev/dm- /dev/mapper/ \
    /dev/disk/ /dev/loop /dev/md /dev/mem /dev/kmem /dev/port /dev/nbd /dev/sr /dev/ram /dev/mtd \
    /dev/block/ /proc/sysrq-trigger /proc/sys/ /sys/";

/// Judges a command by itself; what it runs is judged elsewhere.
pub(crate) fn judge(name: &str, args: &[Value]) -> ShellVerdict {
    if listed(DENIED, name) || name.starts_with("mkfs.") {
        return deny(format!("{name} can destroy the system"));
    }
    if listed(ASKED, name) {
        return ask(format!("{name} affects more than the project"));
    }
    if listed(PACKAGES, name) {
        return packages(name, args);
    }
    match name {
        "rm" => remove(args),
        "find" => find_delete(args),
        "chmod" | "chown" | "chgrp" | "setfacl" => change_mode(name, args),
        "mv" | "cp" | "tee" | "install" | "ln" | "truncate" | "sponge" => overwrite(name, args),
        "dd" => disk_dump(args),
        "kill" => kill(args),
        "init" | "telinit" => runlevel(args),
        "systemctl" | "loginctl" => system_control(name, args),
        "npm" | "pnpm" | "yarn" | "bun" => node_packages(name, args),
        _ => installers(name, args),
    }
}

/// Judges a file that a redirection writes to or reads from.
pub(crate) fn written(file: &Value) -> ShellVerdict {
    match is_device(&file.text) {
        true => deny(format!("{} is a device", file.text)),
        false => ShellVerdict::Allow,
    }
}

fn has(args: &[Value], words: &str) -> bool {
    args.iter().any(|arg| listed(words, &arg.text))
}

fn remove(args: &[Value]) -> ShellVerdict {
    let (mut recursive, mut force, mut unseen, mut options) = (false, false, false, true);
    let mut targets = Vec::new();
    for arg in args {
        let text = arg.text.as_str();
        match options {
            true if text == "--" && arg.is_known() => options = false,
            true if arg.begins_unknown() => unseen = true,
            true if text.starts_with('-') && (text.len() > 1 || !arg.is_known()) => {
                unseen |= !arg.is_known() || arg.pattern;
                let long = text.strip_prefix("--").unwrap_or("");
                let is = |name: &str| !long.is_empty() && name.starts_with(long);
                let short = short_options(text);
                recursive |= is("recursive") || short.contains(['r', 'R']);
                force |= is("force") || short.contains('f');
                if is("no-preserve-root") {
                    return deny("rm --no-preserve-root removes the whole system");
                }
            }
            true | false => targets.push(arg),
        }
    }
    if recursive && force {
        return deny(
            "rm with both -r and -f removes folders without asking: name the files to remove, or \
             use rm -r on a folder of the project",
        );
    }
    if recursive && targets.iter().any(|target| is_critical(&target.text)) {
        return deny("rm -r of a system folder, the home folder or a parent folder");
    }
    match unseen {
        true => ask(
            "some arguments of rm will only be known when it runs and may be options: put -- before \
             them",
        ),
        false => ShellVerdict::Allow,
    }
}

fn find_delete(args: &[Value]) -> ShellVerdict {
    let options = args
        .iter()
        .position(|arg| arg.text.starts_with(['-', '(', '!']));
    let (starts, tests) = args.split_at(options.unwrap_or(args.len()));
    if !has(tests, "-delete") {
        return ShellVerdict::Allow;
    }
    if starts.iter().any(|start| is_critical(&start.text)) {
        return deny("find -delete in a system folder, the home folder or a parent folder");
    }
    if starts.iter().any(|start| !start.is_known()) {
        return ask("the folder where find -delete starts will only be known when it runs");
    }
    match has(tests, CHOOSING) {
        true => ShellVerdict::Allow,
        false => deny("find -delete without a test such as -name removes everything, like rm -rf"),
    }
}

fn change_mode(name: &str, args: &[Value]) -> ShellVerdict {
    let recursive = args.iter().any(|arg| {
        short_options(&arg.text).contains('R')
            || (arg.text.len() > 2 && "--recursive".starts_with(&arg.text))
    });
    match recursive && args.iter().any(|arg| is_critical(&arg.text)) {
        true => deny(format!(
            "{name} -R of a system folder, the home folder or a parent folder"
        )),
        false => ShellVerdict::Allow,
    }
}

fn overwrite(name: &str, args: &[Value]) -> ShellVerdict {
    if let Some(device) = args.iter().find(|arg| is_device(&arg.text)) {
        return deny(format!("{name} writes to the device {}", device.text));
    }
    let files = args.iter().filter(|arg| !arg.text.starts_with('-'));
    let files: Vec<&Value> = files.collect();
    let Some((last, sources)) = files.split_last() else {
        return ShellVerdict::Allow;
    };
    let lost = name == "mv"
        && (last.text == "/dev/null" || sources.iter().any(|file| is_critical(&file.text)));
    match lost {
        true => deny("mv of a system folder, the home folder or a parent folder, or to /dev/null"),
        false => ShellVerdict::Allow,
    }
}

fn disk_dump(args: &[Value]) -> ShellVerdict {
    for arg in args {
        let Some(file) = arg.text.strip_prefix("of=") else {
            continue;
        };
        if is_device(file) {
            return deny(format!("dd writes to the device {file}"));
        }
        if !arg.is_known() {
            return ask("the file that dd writes to will only be known when it runs");
        }
    }
    match args.iter().any(Value::begins_unknown) {
        true => ask("some arguments of dd will only be known when it runs"),
        false => ShellVerdict::Allow,
    }
}

fn kill(args: &[Value]) -> ShellVerdict {
    // The first may be a signal.
    let signal = args
        .first()
        .is_some_and(|arg| arg.text.starts_with('-') && arg.text != "--");
    let mut targets = args.iter().skip(usize::from(signal));
    match targets.any(|arg| arg.is_known() && listed("-1 1", &arg.text)) {
        true => deny("kill of process 1, or of every process (-1)"),
        false => ShellVerdict::Allow,
    }
}

fn runlevel(args: &[Value]) -> ShellVerdict {
    match args.is_empty() || has(args, "--help --version") {
        true => ShellVerdict::Allow,
        false => deny("init changes the state of the whole system"),
    }
}

fn system_control(name: &str, args: &[Value]) -> ShellVerdict {
    match (has(args, ENDING), has(args, STATUS)) {
        (true, _) => deny(format!("{name} ends or suspends the system")),
        (false, true) => ShellVerdict::Allow,
        (false, false) => ask(format!("{name} changes services of the system")),
    }
}

fn node_packages(name: &str, args: &[Value]) -> ShellVerdict {
    match has(args, "-g --global --location=global global publish") {
        true => ask(format!(
            "{name} changes packages outside of the project, or publishes one"
        )),
        false => ShellVerdict::Allow,
    }
}

fn packages(name: &str, args: &[Value]) -> ShellVerdict {
    let mut words = args.iter();
    let word = words.find(|arg| !arg.text.starts_with('-') || listed(LOOKING, &arg.text));
    let looks = match (name, args.first().map(|arg| arg.text.as_str())) {
        ("dpkg", Some(option)) if listed("-l -L -s -S --list --listfiles --status", option) => true,
        ("rpm", Some(option)) => option.starts_with("-q"),
        _ => word.is_some_and(|arg| arg.is_known() && listed(LOOKING, &arg.text)),
    };
    match looks {
        true => ShellVerdict::Allow,
        false => ask(format!("{name} changes the packages of the system")),
    }
}

fn installers(name: &str, args: &[Value]) -> ShellVerdict {
    let module = |pair: &[Value]| pair[0].text == "-m" && pair[1].text == "pip";
    let versioned_pip = name
        .strip_prefix("pip")
        .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'));
    let pip = versioned_pip || (name.starts_with("python") && args.windows(2).any(module));
    let installer = if pip { "pip" } else { name };
    let commands = INSTALLERS.iter().find(|(name, _)| *name == installer);
    match commands {
        Some((_, commands)) if commands.is_empty() || has(args, commands) => {
            ask(format!("{name} installs, removes or publishes packages"))
        }
        _ => ShellVerdict::Allow,
    }
}

fn is_critical(text: &str) -> bool {
    let path = plain_path(text);
    listed(FOLDERS, &path)
        || (path.starts_with('~') && !path.contains('/'))
        || path.split('/').all(|step| step == "..")
}

fn is_device(text: &str) -> bool {
    text.starts_with('/') && {
        let path = plain_path(text);
        DEVICES
            .split_whitespace()
            .any(|start| path.starts_with(start))
    }
}

/// A path without `.`, `..`, repeated slashes and a last `*`.
fn plain_path(text: &str) -> String {
    let mut steps: Vec<&str> = Vec::new();
    let absolute = text.starts_with('/');
    for step in text.split('/') {
        match step {
            "" | "." => {}
            ".." => match steps.last() {
                Some(&last) if last != ".." => drop(steps.pop()),
                None if absolute => {}
                _ => steps.push(".."),
            },
            step => steps.push(step),
        }
    }
    let all = |step: &&str| listed("* .* {*,.*} .[!.]*", step);
    if steps.len() + usize::from(absolute) > 1 && steps.last().is_some_and(all) {
        steps.pop();
    }
    match (absolute, steps.join("/")) {
        (true, joined) => format!("/{joined}"),
        (false, joined) if joined.is_empty() => ".".to_owned(),
        (false, joined) => joined,
    }
}
