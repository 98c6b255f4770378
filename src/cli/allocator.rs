//! The allocator of the program: a large buffer that is freed goes back to the system at once.
//!
//! glibc takes a large buffer from the system, and gives it back when it is freed. But then it takes later buffers of up to that size from its heap, where
//! free memory goes back only from the end. A process that had many bodies in memory, one after the other, would keep most of the memory of all of them,
//! whatever its limits say. A fixed threshold turns this rule off (mallopt(3)).

/// Buffers of at least this many bytes are taken from the system, each by itself.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 1 << 20;

/// Sets the thresholds. Other allocators than glibc's have no such rule.
pub fn set_up() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "a call of C without pointers, which may be made at any time")]
    let is_set = unsafe {
        // The heap keeps twice as many free bytes at its end, as it would by the rule of glibc.
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) == 1 && libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * LARGE) == 1
    };
    #[cfg(target_env = "gnu")]
    debug_assert!(is_set, "glibc knows both settings");
}
