//! The code and the constants of the program: pages of its file that nothing ever writes. They can leave the process at any time, and come back
//! from the system's cache of the file as they are used.

use std::ffi::{c_int, c_void};
use std::ops::Range;

/// Where they are, as addresses of whole pages.
pub struct Code(Vec<Range<usize>>);

impl Code {
    /// Those of this program, without its libraries, which are small.
    pub fn of_program() -> Code {
        let mut found = Vec::new();
        // SAFETY: the list outlives the call, which hands it to `first_object` alone.
        unsafe { libc::dl_iterate_phdr(Some(first_object), (&raw mut found).cast()) };
        Code(found)
    }

    /// Lets them leave.
    pub fn release(&self) {
        for pages in &self.0 {
            // SAFETY: the mapping is one of a file, and as it is never written its pages come back as they were.
            unsafe {
                let (at, len) = (pages.start as *mut c_void, pages.len());
                libc::madvise(at, len, libc::MADV_DONTNEED)
            };
        }
    }
}

/// Appends the segments that are not writable to a list of ranges, and ends the walk: the program comes first. What the loader writes before
/// it makes it read-only is in a segment that is writable.
unsafe extern "C" fn first_object(
    object: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    found: *mut c_void,
) -> c_int {
    // SAFETY: `of_program` hands over such a list, and the loader an object with its headers.
    let (object, found, headers) = unsafe {
        let object = &*object;
        let headers = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        (object, &mut *found.cast::<Vec<Range<usize>>>(), headers)
    };
    let page = crate::memory::page();
    let headers = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD);
    let unwritten = headers.filter(|header| header.p_flags & libc::PF_W == 0);
    found.extend(unwritten.map(|header| {
        let start = (object.dlpi_addr + header.p_vaddr) as usize;
        start / page * page..(start + header.p_memsz as usize).next_multiple_of(page)
    }));
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ranges::PAGE;
    use std::fs;

    /// Kilobytes of the mapping that has an address which are in the process.
    fn resident(at: usize) -> usize {
        let maps = fs::read_to_string("/proc/self/smaps").expect("the mappings");
        let mut lines = maps.lines().skip_while(|line| {
            let range = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'));
            let ends = range.map(|(a, b)| [a, b].map(|x| usize::from_str_radix(x, 16)));
            !matches!(ends, Some([Ok(start), Ok(end)]) if (start..end).contains(&at))
        });
        let rss = lines.find_map(|line| line.strip_prefix("Rss:"));
        let rss = rss.and_then(|rss| rss.trim().strip_suffix(" kB"));
        rss.expect("a mapping").parse().expect("a number")
    }

    #[test]
    fn the_program_goes_on_after_its_code_has_left() {
        let code = Code::of_program();
        let own = resident as *const () as usize;
        assert!(code.0.iter().any(|pages| pages.contains(&own)), "{own:x}");
        let text = |n: usize| format!("{:?}", (0..n).map(|k| k * k).collect::<Vec<_>>());
        let said = text(5);
        for at in code.0.iter().flat_map(|pages| pages.clone().step_by(PAGE)) {
            // SAFETY: it is mapped to be read.
            unsafe { (at as *const u8).read_volatile() };
        }
        let before = resident(own);
        code.release();
        let after = resident(own);
        // Other tests run meanwhile and bring back what they use.
        assert!(after < before / 2, "{before} kB, {after} kB");
        assert_eq!([said, text(5)], ["[0, 1, 4, 9, 16]"; 2]);
    }
}
