//! What kernels call a machine, in the words of images.

/// The architecture behind `uname -m`: `x86_64` is `amd64`, `armv7l` is `arm`. None for names
/// that no image uses.
pub fn architecture(machine: &str) -> Option<&'static str> {
    let machine = machine.trim().to_ascii_lowercase();
    Some(match machine.as_str() {
        "x86_64" | "amd64" => "amd64",
        "i386" | "i486" | "i586" | "i686" => "386",
        "aarch64" | "arm64" => "arm64",
        "aarch64_be" => "arm64be",
        "ppc64le" => "ppc64le",
        "ppc64" => "ppc64",
        "ppc" => "ppc",
        "s390x" => "s390x",
        "s390" => "s390",
        "riscv64" => "riscv64",
        "riscv32" => "riscv",
        "loongarch64" => "loong64",
        "sparc64" => "sparc64",
        "sparc" => "sparc",
        arm if arm.starts_with("armv") => {
            if arm.ends_with('b') {
                "armbe"
            } else {
                "arm"
            }
        }
        _ => return None,
    })
}

/// The operating system behind `uname -s`.
pub fn os(name: &str) -> Option<String> {
    let name = name.trim().to_ascii_lowercase();
    let plain =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    plain.then_some(name)
}
