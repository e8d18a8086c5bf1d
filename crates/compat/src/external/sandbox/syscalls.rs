//! The filter of system calls.
//!
//! It denies what a program that reads its input and prints an answer never needs. To allow only
//! what it needs would break the runtime of the next language; whatever is newer than this list
//! is answered as an old kernel would, so the kernel cannot grow past it.

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter, sock_filter,
};

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilterError {
    /// The compiler of filters has no tables for it.
    #[error("no filter of system calls can be made for {}", std::env::consts::ARCH)]
    Architecture,
    /// It could not be put together.
    #[error("the filter of system calls cannot be compiled")]
    Compile(#[source] BackendError),
    /// The kernel does not take it.
    #[error("the kernel takes no filter of system calls")]
    Apply(#[source] seccompiler::Error),
}

impl From<BackendError> for FilterError {
    fn from(error: BackendError) -> Self {
        Self::Compile(error)
    }
}

/// The newest call that was looked at (`mseal`). Numbers from 424 on are the same everywhere.
const NEWEST: u32 = 462;

/// "Put this byte into the terminal's input", and a console's paste.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// Of arm64 with musl the crate `libc` knows it not; the number is that of the kernel's common table.
#[cfg(target_arch = "aarch64")]
const KEXEC_FILE_LOAD: i64 = 294;
#[cfg(not(target_arch = "aarch64"))]
const KEXEC_FILE_LOAD: i64 = libc::SYS_kexec_file_load;

/// Never needed, by kind.
const DENIED: &[i64] = &[
    // The network, in every family.
    libc::SYS_socket,
    libc::SYS_socketpair,
    // A ring does what it is told past every filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Leaving the group that is ended as one.
    libc::SYS_setsid,
    libc::SYS_setpgid,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    // The kernel itself.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_settimeofday,
    libc::SYS_adjtimex,
    libc::SYS_personality,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
    // Keys of the caller.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Files by a number instead of a name, past Landlock.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // What Landlock does not watch: lengths, owners, modes, times and attributes.
    libc::SYS_truncate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    452, // fchmodat2
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    // Memory that no limit counts, and queues that outlive the plugin.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_msgget,
    libc::SYS_mq_open,
    libc::SYS_memfd_secret,
    // Requests of which the whole machine has a fixed number.
    libc::SYS_io_setup,
];

/// The same under their older names, where the architecture still has those.
#[cfg(target_arch = "x86_64")]
const DENIED_OLD: &[i64] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_OLD: &[i64] = &[];

/// Locks the running thread and all that comes of it.
pub(super) fn restrict(own_pid: u32) -> Result<(), FilterError> {
    let architecture: TargetArch =
        std::env::consts::ARCH.try_into().map_err(|_| FilterError::Architecture)?;
    let deny = SeccompFilter::new(
        rules(own_pid)?,
        SeccompAction::Allow,
        SeccompAction::Errno(EPERM),
        architecture,
    )?;
    // Its arguments lie in memory, where a filter cannot look. Everybody then takes `clone`.
    let old = SeccompFilter::new(
        [(libc::SYS_clone3, Vec::new())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(ENOSYS),
        architecture,
    )?;
    let deny: BpfProgram = deny.try_into()?;
    let old: BpfProgram = old.try_into()?;
    for program in [numbers(), old, deny] {
        apply_filter(&program).map_err(FilterError::Apply)?;
    }
    Ok(())
}

type Rules = std::collections::BTreeMap<i64, Vec<SeccompRule>>;

fn rules(own_pid: u32) -> Result<Rules, BackendError> {
    let when = |argument, size, op, value| -> Result<Vec<SeccompRule>, BackendError> {
        let condition = SeccompCondition::new(argument, size, op, value)?;
        Ok(vec![SeccompRule::new(vec![condition])?])
    };
    let mut rules: Rules =
        DENIED.iter().chain(DENIED_OLD).map(|number| (*number, Vec::new())).collect();

    // Threads yes, processes no: a plugin is one process, so one kill ends it and one limit
    // bounds it.
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
    rules.insert(libc::SYS_clone, when(0, Len::Qword, Op::MaskedEq(thread), 0)?);

    // Signals to itself, as runtimes send to their own threads.
    for number in [libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill] {
        rules.insert(number, when(0, Len::Dword, Op::Ne, u64::from(own_pid))?);
    }

    // Ending with the caller, which was asked for before the plugin began.
    let end_with_caller = u64::from(libc::PR_SET_PDEATHSIG.cast_unsigned());
    rules.insert(libc::SYS_prctl, when(0, Len::Dword, Op::Eq, end_with_caller)?);

    // Limits, processors and priorities of others: whoever has the same user may set them.
    for number in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
    ] {
        rules.insert(number, when(0, Len::Dword, Op::Ne, 0)?);
    }
    for number in [libc::SYS_setpriority, libc::SYS_ioprio_set] {
        rules.insert(number, when(1, Len::Dword, Op::Ne, 0)?);
    }

    // Memory shared with nobody is memory that the limit on data does not count.
    let shared = u64::from((libc::MAP_SHARED | libc::MAP_ANONYMOUS).cast_unsigned());
    rules.insert(libc::SYS_mmap, when(3, Len::Dword, Op::MaskedEq(shared), shared)?);

    // Typing on somebody's terminal.
    let mut terminal = when(1, Len::Dword, Op::Eq, TIOCSTI)?;
    terminal.extend(when(1, Len::Dword, Op::Eq, TIOCLINUX)?);
    rules.insert(libc::SYS_ioctl, terminal);
    Ok(rules)
}

/// A filter of numbers alone: the compiler above compares calls one by one and knows no "above".
///
/// On x86-64 a call may be made with bit 30 set (x32): the same calls under numbers that no list
/// names. No program is built so, and one that tries is ended.
fn numbers() -> BpfProgram {
    const LOAD: u16 = 0x20;
    const ABOVE: u16 = 0x25;
    const AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const X32: u32 = 0x4000_0000;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    const KILL: u32 = 0x8000_0000;
    let op = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        op(LOAD, 0, 0, 0),
        op(AT_LEAST, 3, 0, X32),
        op(ABOVE, 1, 0, NEWEST),
        op(RETURN, 0, 0, ALLOW),
        op(RETURN, 0, 0, ERRNO | ENOSYS),
        op(RETURN, 0, 0, KILL),
    ]
}
