//! The system calls that every sandbox refuses.
//!
//! This is a deny list, since nobody can list all calls that a build may need; the namespaces and Landlock
//! confine the rest. A refused call fails with EPERM, so that programs fall back.
//!
//! Tracing is allowed, since leak detection and debuggers need it: all that can be traced is under this filter
//! too. The guest and a container's first process are not dumpable, in a jail's namespaces there is no other
//! process, and without namespaces Landlock refuses to trace what is outside.

use std::collections::BTreeMap;

use anyhow::Result;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use crate::args::{Confinement, Options};

/// Builds and tests do not need these, and each is a way to attack the kernel or another process.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
];

/// System V shared memory, message queues and semaphores, and the message queues of POSIX, whose file system is inside the
/// kernel, where Landlock restricts nothing.
const SHARED_BY_KEY: &[libc::c_long] = &[
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmget,
];

const NAMESPACES: &[libc::c_int] = &[
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Installs the filters on the calling thread and all that it will start.
pub(crate) fn install(options: &Options) -> Result<()> {
    let confinement = options.confinement;
    let mut refused: Rules = REFUSED.iter().map(|&call| (call, Vec::new())).collect();
    refused.insert(libc::SYS_clone, namespaces()?);
    refused.insert(libc::SYS_ioctl, terminal_injection()?);
    refused.insert(libc::SYS_socket, sockets(confinement)?);
    if confinement == Confinement::Alone {
        refused.insert(libc::SYS_listen, Vec::new());
        // Those of the user's other processes could be reached: nothing but a namespace confines them.
        for call in SHARED_BY_KEY {
            refused.insert(*call, Vec::new());
        }
        // TCP fast open connects without a check by Landlock.
        for (call, argument) in [
            (libc::SYS_sendto, 3),
            (libc::SYS_sendmsg, 2),
            (libc::SYS_sendmmsg, 3),
        ] {
            refused.insert(call, vec![rule(&[has(argument, libc::MSG_FASTOPEN)?])?]);
        }
    }
    apply(refused, libc::EPERM)?;
    // Its flags are in memory, which a filter cannot read. Callers fall back to clone.
    let mut missing = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    if options.watched_memory > 0 {
        // Files in memory that no process maps, where only what is mapped counts. Callers fall back to files.
        missing.insert(libc::SYS_memfd_create, Vec::new());
    }
    apply(missing, libc::ENOSYS)?;
    #[cfg(target_arch = "x86_64")]
    refuse_x32()?;
    Ok(())
}

fn apply(rules: Rules, errno: i32) -> Result<()> {
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno.cast_unsigned()),
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)?;
    Ok(())
}

/// The x32 calls have different numbers, which the lists above do not contain.
#[cfg(target_arch = "x86_64")]
fn refuse_x32() -> Result<()> {
    use seccompiler::sock_filter;
    const X32_BIT: u32 = 0x4000_0000;
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_GREATER_OR_EQUAL: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let line = |code, jt, k| sock_filter { code, jt, jf: 0, k };
    let program = [
        line(LOAD_NUMBER, 0, 0),
        line(JUMP_IF_GREATER_OR_EQUAL, 1, X32_BIT),
        line(RETURN, 0, SeccompAction::Allow.into()),
        line(
            RETURN,
            0,
            SeccompAction::Errno(libc::ENOSYS.cast_unsigned()).into(),
        ),
    ];
    seccompiler::apply_filter(&program)?;
    Ok(())
}

fn namespaces() -> Result<Vec<SeccompRule>> {
    NAMESPACES
        .iter()
        .map(|&flag| rule(&[has(0, flag)?]))
        .collect()
}

fn terminal_injection() -> Result<Vec<SeccompRule>> {
    const TIOCLINUX: i64 = 0x541c;
    [libc::TIOCSTI.cast_signed(), TIOCLINUX]
        .into_iter()
        .map(|request| rule(&[is(1, request)?]))
        .collect()
}

fn sockets(confinement: Confinement) -> Result<Vec<SeccompRule>> {
    let internet = [libc::AF_INET, libc::AF_INET6];
    if confinement != Confinement::Alone {
        // The families that a network namespace confines. Vsock is not one of them.
        let families = [
            libc::AF_UNIX,
            libc::AF_INET,
            libc::AF_INET6,
            libc::AF_NETLINK,
        ];
        return Ok(vec![none_of(0, &families)?]);
    }
    let mut rules = vec![none_of(0, &internet)?];
    for family in internet {
        // Landlock only covers TCP, so everything else is refused, even multipath TCP.
        for kind in (0..=0xf).filter(|&kind| kind != libc::SOCK_STREAM) {
            rules.push(rule(&[is(0, family.into())?, masked(1, 0xf, kind)?])?);
        }
        let other = [not(2, 0)?, not(2, libc::IPPROTO_TCP)?];
        rules.push(rule(&[vec![is(0, family.into())?], other.into()].concat())?);
    }
    Ok(rules)
}

fn none_of(argument: u8, values: &[i32]) -> Result<SeccompRule> {
    let conditions: Result<Vec<_>> = values.iter().map(|&value| not(argument, value)).collect();
    rule(&conditions?)
}

fn rule(conditions: &[SeccompCondition]) -> Result<SeccompRule> {
    Ok(SeccompRule::new(conditions.to_vec())?)
}

fn is(argument: u8, value: i64) -> Result<SeccompCondition> {
    let value = value.cast_unsigned() & u64::from(u32::MAX);
    Ok(SeccompCondition::new(
        argument,
        Dword,
        SeccompCmpOp::Eq,
        value,
    )?)
}

fn not(argument: u8, value: i32) -> Result<SeccompCondition> {
    let value = value.cast_unsigned().into();
    Ok(SeccompCondition::new(
        argument,
        Dword,
        SeccompCmpOp::Ne,
        value,
    )?)
}

fn has(argument: u8, flag: i32) -> Result<SeccompCondition> {
    masked(argument, flag.cast_unsigned().into(), flag)
}

fn masked(argument: u8, mask: u64, value: i32) -> Result<SeccompCondition> {
    let value = value.cast_unsigned().into();
    Ok(SeccompCondition::new(
        argument,
        Dword,
        SeccompCmpOp::MaskedEq(mask),
        value,
    )?)
}
