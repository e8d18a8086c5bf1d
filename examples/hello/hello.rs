//! Says which platform it is for, and ends. No library, no loader, no memory of its own: two calls of
//! the kernel. How it is made is in README.md.
#![no_std]
#![no_main]

use core::arch::asm;

#[cfg(target_arch = "x86_64")]
const TEXT: &[u8] = b"hello from linux/amd64\n";
#[cfg(target_arch = "aarch64")]
const TEXT: &[u8] = b"hello from linux/arm64\n";

/// What the kernel starts.
#[unsafe(no_mangle)]
pub extern "C" fn _start() -> ! {
    // SAFETY: write(1, TEXT, len) reads TEXT, which is never changed, and nothing else.
    unsafe { call(WRITE, 1, TEXT.as_ptr() as usize, TEXT.len()) };
    loop {
        // SAFETY: exit_group(0) takes no memory and does not come back.
        unsafe { call(EXIT_GROUP, 0, 0, 0) };
    }
}

#[cfg(target_arch = "x86_64")]
const WRITE: usize = 1;
#[cfg(target_arch = "x86_64")]
const EXIT_GROUP: usize = 231;

#[cfg(target_arch = "x86_64")]
unsafe fn call(number: usize, a: usize, b: usize, c: usize) {
    // SAFETY: the caller's; what the kernel changes is named.
    unsafe {
        asm!("syscall", inlateout("rax") number => _, in("rdi") a, in("rsi") b, in("rdx") c,
             lateout("rcx") _, lateout("r11") _, options(nostack))
    };
}

#[cfg(target_arch = "aarch64")]
const WRITE: usize = 64;
#[cfg(target_arch = "aarch64")]
const EXIT_GROUP: usize = 94;

#[cfg(target_arch = "aarch64")]
unsafe fn call(number: usize, a: usize, b: usize, c: usize) {
    // SAFETY: the caller's; what the kernel changes is named.
    unsafe {
        asm!("svc #0", in("x8") number, inlateout("x0") a => _, in("x1") b, in("x2") c,
             options(nostack))
    };
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
