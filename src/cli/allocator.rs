//! The allocator of the program: a large buffer that is freed goes back to the system at once.
//!
//! glibc takes a large buffer from the system, and gives it back when it is freed. But then it takes later buffers of up to that size from its heap (up to
//! 32 MiB), and the heap gives back only the free memory at its end. Downloads that run side by side get parts of the heap one after the other, and each
//! fills its part in its own time. So a process keeps most of the memory of all bodies that it has had, whatever its limits say. With fixed thresholds
//! glibc does not do this (mallopt(3)).

/// Sets the thresholds. To be called before there is another thread.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "no crate has a safe function for these settings")]
pub fn set_up() {
    /// A buffer of at least this many bytes is taken from the system, unless a free part of the heap is large enough.
    const LARGE: libc::c_int = 1 << 20;
    // SAFETY: neither call has a pointer, and there is no other thread. Up to 2 MiB of free memory stay at the end of the heap: glibc, too, uses twice the
    // first threshold.
    let is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) == 1 && libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * LARGE) == 1 };
    debug_assert!(is_set, "glibc knows both settings");
}

/// Other allocators have no such rule.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn set_up() {}
