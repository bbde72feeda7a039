//! Programs that run what they are given, and how each of them is given it.

/// A program that runs the rest of its arguments.
pub(crate) struct Wrapper {
    pub(crate) name: &'static str,
    /// Options that take the next argument.
    values: &'static str,
    /// Options without a value.
    flags: &'static str,
    /// How many arguments of its own precede the command.
    pub(crate) own: usize,
}

/// Name, options with a value, options without one, arguments before the command.
const WRAPPERS: &str = "\
    env              | -u --unset -C --chdir | -i -0 - -v                 | 0
    nohup            |                       |                            | 0
    setsid           |                       | -f -w -c                   | 0
    nice             | -n --adjustment       |                            | 0
    ionice           | -c -n --class         | -t                         | 0
    chrt             |                       | -b -f -i -o -r             | 1
    taskset          |                       | -c -a                      | 1
    timeout          | -s -k --signal --kill-after | -v --foreground --preserve-status | 1
    stdbuf           | -i -o -e              |                            | 0
    time             | -f -o                 | -p -v                      | 0
    command          |                       | -p                         | 0
    builtin          |                       |                            | 0
    exec             | -a                    | -c -l                      | 0
    nocorrect        |                       |                            | 0
    noglob           |                       |                            | 0
    sudo             | -u -g -h -p -C -r -t -T -U -D -R --user --group | -n -E -H -S -b -i -s -k | 0
    doas             | -u -C                 | -n -s                      | 0
    pkexec           | --user                |                            | 0
    runuser          | -u -g                 | -l                         | 0
    busybox          |                       |                            | 0
    toybox           |                       |                            | 0
    xargs            | -n -P -L -d -s -E -a -I --max-args --max-procs --delimiter \
                     | -0 -r -t -p -x --null --no-run-if-empty            | 0
    parallel         | -j --jobs -I -a       | -0 -k --bar                | 0
    chroot           |                       |                            | 1
    unshare          |                       |                            | 0
    nsenter          | -t                    |                            | 0
    setpriv          |                       |                            | 0
    capsh            |                       |                            | 0
    strace           | -e -o -p -s -E -u     | -f -c -q -v -y             | 0
    ltrace           | -e -o -p -s           | -f -c                      | 0
    catchsegv        |                       |                            | 0
    setarch          |                       | -R                         | 1
    linux32          |                       |                            | 0
    linux64          |                       |                            | 0
    fakeroot         | -l -i -s              | --                         | 0
    faketime         |                       | -f                         | 1
    proot            |                       |                            | 0
    firejail         |                       |                            | 0
    bwrap            |                       |                            | 0
    systemd-run      |                       | --user --scope             | 0
    cgexec           | -g                    |                            | 0
    dbus-run-session |                       | --                         | 0
    xvfb-run         | -s -n                 | -a                         | 0
    unbuffer         |                       | -p                         | 0";

/// Programs that run a command that begins somewhere among their arguments.
pub(crate) const RUNNERS: &str = "cpulimit chpst eatmydata entr fd fdfind gosu hyperfine i386 nocache \
    numactl perf prlimit s6-setuidgid setuidgid sg softlimit start-stop-daemon su-exec trickle tsocks \
    valgrind x86_64 chronic";

pub(crate) const SHELLS: &str = "sh bash dash zsh ksh ksh93 mksh ash fish csh tcsh rbash yash posh lksh \
    hush sh.distrib";

/// Programs that take code as an argument, without the version in their names.
pub(crate) const INTERPRETERS: &str = "python pypy perl ruby node nodejs deno bun php lua luajit awk gawk \
    mawk nawk osascript tclsh expect Rscript julia groovy elixir";

/// Programs with options whose values are scripts.
pub(crate) const SCRIPT_OPTIONS: [(&str, &str); 14] = [
    ("su", "-c --command --session-command"),
    ("runuser", "-c --command"),
    ("script", "-c --command"),
    ("flock", "-c --command"),
    ("env", "-S --split-string"),
    ("sg", "-c"),
    (
        "tar",
        "-I --use-compress-program --to-command --checkpoint-action=exec --rsh-command",
    ),
    ("npm", "-c --call"),
    ("npx", "-c --call"),
    ("rsync", "-e --rsh --rsync-path"),
    ("rg", "--pre"),
    ("man", "-P --pager"),
    ("pwsh", "-c -Command"),
    (
        "ssh",
        "ProxyCommand -oProxyCommand LocalCommand -oLocalCommand",
    ),
];

/// Whether a list names a word.
pub(crate) fn listed(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|item| item == word)
}

impl Wrapper {
    pub(crate) fn find(name: &str) -> Option<Self> {
        let line = WRAPPERS
            .lines()
            .find(|line| line.split_whitespace().next() == Some(name))?;
        let mut fields = line.split('|').map(str::trim);
        Some(Self {
            name: fields.next()?,
            values: fields.next()?,
            flags: fields.next()?,
            own: fields.next()?.parse().ok()?,
        })
    }

    /// How many arguments an option takes with its value; `None` for one that is not known.
    pub(crate) fn option(&self, text: &str) -> Option<usize> {
        let attached = |option: &str| text.len() > option.len() && text.starts_with(option);
        let number = text.len() > 1 && text[1..].chars().all(|c| c.is_ascii_digit());
        if listed(self.values, text) {
            return Some(2);
        }
        let known = listed(self.flags, text) || self.values.split_whitespace().any(attached);
        (known || number).then_some(1)
    }

    pub(crate) fn is_option(&self, text: &str) -> bool {
        (text.starts_with('-') && text.len() > 1) || listed(self.flags, text)
    }
}
