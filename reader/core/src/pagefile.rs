//! The page file, the frame that all `.imx` files share (docs/formats/pagefile.md).
//!
//! [`PageFile::open`] reads two pages: the header and the footer. Sections are read afterwards, whole or page by
//! page, and every page is compared with its entry of section "crc".
//!
//! A header may promise more than there is, and a file may have holes, which take no room on disk. So memory is reserved
//! for a section first, which the system may refuse, and used as pages arrive and pass their checksums: what a section
//! makes the reader hold is at most 1,024 times its checksums, 4 bytes a page, which cannot be a hole themselves.

use std::fs::{File, FileType};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::bytes::{u16_at, u32_at, u32s, u64_at};
use crate::checksum;
use crate::directory::Directory;
use crate::error::{Error, InFile, Place, Result};
use crate::file_id::FileId;
use crate::files;
use crate::interrupt::{Stop, go_on};
use crate::memory::{Region, reserve};

/// Unit of reading, of addressing and of checksums.
pub use crate::memory::PAGE_BYTES;
/// Newest format major of a page file that this code reads, written at its offset 12. Another major is refused, a higher
/// minor only adds sections and fields, which are ignored.
const MAJOR: u16 = 1;
/// Oldest major that this code still reads.
pub const OLDEST_MAJOR: u16 = 1;
/// Bytes of the build id in a header.
pub const BUILD_ID_BYTES: usize = 16;

const MAGIC: &[u8; 8] = b"\x89IMILL\r\n";
const FOOTER_MAGIC: &[u8; 8] = b"IMILLEND";
const CRC_OFFSET: usize = PAGE_BYTES - 4;
const TABLE_OFFSET: usize = 64;
const SECTION_BYTES: usize = 40;
const FIELD_BYTES: usize = 24;
const MAX_SECTIONS: usize = 16;
const MAX_FIELDS: usize = 100;
/// Section of the checksums of all other pages.
pub(crate) const CRC_SECTION: &str = "crc";
/// Bytes of a section that are read and checked before memory for more is used.
pub(crate) const PIECE_BYTES: usize = 256 * PAGE_BYTES;

/// One page.
pub type Page = [u8; PAGE_BYTES];

/// An entry of the section table; `first_page` counts from the start of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Section {
    /// ASCII name.
    pub name: String,
    /// Page where the payload starts.
    pub first_page: u64,
    /// Pages of payload and padding.
    pub pages: u64,
    /// Bytes without padding.
    pub payload: u64,
}

/// What a header page says.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Header {
    /// First 16 bytes of the index's build id.
    pub build_id: [u8; BUILD_ID_BYTES],
    /// Size of the file in bytes, equal to the real one.
    pub file_bytes: u64,
    /// In file order; the last one is "crc".
    pub sections: Vec<Section>,
    /// Field names and values in file order.
    pub fields: Vec<(String, u64)>,
}

/// An opened page file: header and footer are checked, nothing else was read.
#[derive(Debug)]
pub struct PageFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its header.
    pub header: Header,
    file: File,
    footer_crc: u32,
}

/// Parses and checks a header page against the real size of its file.
///
/// # Errors
/// In the order of the specification: `Foreign`, `Corrupt` (CRC), `TooNew`, `TooOld`, `Corrupt`.
pub fn parse_header(path: &Path, page: &Page, kind: &[u8; 4], real_bytes: u64) -> Result<Header> {
    if !page.starts_with(MAGIC) {
        let message = "expected a page file of indexmill, got another kind of file; check the path";
        return Err(Error::Foreign(InFile::of(path, message)));
    }
    check_own_crc(path, page, "header page")?;
    check_major(path, u16_at(page, 12).into(), MAJOR)?;
    if &page[8..12] != kind {
        let (want, got) = (String::from_utf8_lossy(kind), String::from_utf8_lossy(&page[8..12]));
        return Err(Error::corrupt(path, "kind in the header", format!("{want:?}"), format!("{got:?}")));
    }
    if u32_at(page, 32) as usize != PAGE_BYTES {
        return Err(Error::corrupt(path, "page bytes in the header", PAGE_BYTES, u32_at(page, 32)));
    }
    let file_bytes = u64_at(page, 40);
    if file_bytes != real_bytes || !file_bytes.is_multiple_of(PAGE_BYTES as u64) {
        return Err(Error::corrupt(path, "size of the file", format!("{file_bytes} bytes, whole pages"), real_bytes));
    }
    let (n_sections, n_fields) = (u16_at(page, 36) as usize, u16_at(page, 38) as usize);
    if !(1..=MAX_SECTIONS).contains(&n_sections) || n_fields > MAX_FIELDS {
        let got = format!("{n_sections} and {n_fields}");
        return Err(Error::corrupt(path, "section and field counts in the header", "1..16 and 0..100", got));
    }
    let field_offset = TABLE_OFFSET + n_sections * SECTION_BYTES;
    let mut sections = Vec::with_capacity(n_sections);
    for i in 0..n_sections {
        let at = TABLE_OFFSET + i * SECTION_BYTES;
        let name = parse_name(path, &page[at..at + 16])?;
        let (first_page, pages, payload) = (u64_at(page, at + 16), u64_at(page, at + 24), u64_at(page, at + 32));
        sections.push(Section { name, first_page, pages, payload });
    }
    let mut fields = Vec::with_capacity(n_fields);
    for i in 0..n_fields {
        let at = field_offset + i * FIELD_BYTES;
        let name = parse_name(path, &page[at..at + 16])?;
        if fields.iter().any(|(known, _)| *known == name) {
            return Err(Error::corrupt(path, "field table", "different names", format!("{name:?} twice")));
        }
        fields.push((name, u64_at(page, at + 16)));
    }
    check_sections(path, &sections, file_bytes)?;
    let build_id = *page[16..].first_chunk().expect("a page is longer");
    Ok(Header { build_id, file_bytes, sections, fields })
}

/// Refuses majors that this code does not read, of which `newest` is the last.
pub fn check_major(path: &Path, major: u64, newest: u16) -> Result<()> {
    let known = if newest == OLDEST_MAJOR { format!("{newest}") } else { format!("{OLDEST_MAJOR} to {newest}") };
    let message = |age: &str| format!("format major: expected {known}, got the {age} {major}");
    if major > newest.into() {
        let message = format!("{}; install a newer indexmill to read it", message("newer"));
        return Err(Error::TooNew(InFile::of(path, message)));
    }
    if major < OLDEST_MAJOR.into() {
        let message = format!("{}; rebuild the index with this indexmill", message("older"));
        return Err(Error::TooOld(InFile::of(path, message)));
    }
    Ok(())
}

fn parse_name(path: &Path, raw: &[u8]) -> Result<String> {
    let end = raw.iter().position(|&b| b == 0).unwrap_or(raw.len());
    let (name, padding) = raw.split_at(end);
    if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) || padding.iter().any(|&b| b != 0) {
        let got = raw.escape_ascii();
        return Err(Error::corrupt(path, "a name in the header", "ASCII, zero padded", got));
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

fn check_sections(path: &Path, sections: &[Section], file_bytes: u64) -> Result<()> {
    let mut next = 1u64;
    for (i, section) in sections.iter().enumerate() {
        let place = format!("section {:?} in the header", section.name);
        if sections[..i].iter().any(|s| s.name == section.name) {
            return Err(Error::corrupt(path, place, "one section of this name", "two"));
        }
        if section.first_page != next {
            return Err(Error::corrupt(path, place, format!("first page {next}"), section.first_page));
        }
        if section.pages != section.payload.div_ceil(PAGE_BYTES as u64) {
            let expected = format!("{} pages for {} bytes", section.payload.div_ceil(4096), section.payload);
            return Err(Error::corrupt(path, place, expected, section.pages));
        }
        let room = (file_bytes / PAGE_BYTES as u64).saturating_sub(1);
        next = next.checked_add(section.pages).filter(|&end| end <= room).ok_or_else(|| {
            Error::corrupt(path, &place, format!("an end before page {room}"), format!("{} more pages", section.pages))
        })?;
    }
    let Some(last) = sections.last().filter(|s| s.name == CRC_SECTION) else {
        return Err(Error::corrupt(path, "last section in the header", "\"crc\"", "another one"));
    };
    let checksums = 4 * (last.first_page - 1);
    if last.payload != checksums {
        return Err(Error::corrupt(path, "section \"crc\"", format!("{checksums} bytes"), last.payload));
    }
    if (next + 1) * PAGE_BYTES as u64 != file_bytes {
        return Err(Error::corrupt(
            path,
            "size of the file",
            format!("{} pages", next + 1),
            format!("{file_bytes} bytes"),
        ));
    }
    Ok(())
}

fn check_own_crc(path: &Path, page: &Page, place: &str) -> Result<()> {
    let (want, got) = (u32_at(page, CRC_OFFSET), crc32c::crc32c(&page[..CRC_OFFSET]));
    if want != got {
        return Err(Error::corrupt(path, place, format!("CRC32C {want:08x}"), format!("{got:08x}")));
    }
    Ok(())
}

/// Compares a data page with its stored checksum; `number` counts from the start of the file.
pub fn check_page(path: &Path, number: u64, page: &[u8], want: u32) -> Result<()> {
    check_crc(path, number, want, checksum::of_page(page))
}

/// Compares the checksum of a data page with the stored one.
pub(crate) fn check_crc(path: &Path, number: u64, want: u32, got: u32) -> Result<()> {
    if want != got {
        return Err(Error::corrupt(path, Place::page(number), format!("CRC32C {want:08x}"), format!("{got:08x}")));
    }
    Ok(())
}

impl PageFile {
    /// Opens `path` and checks its header and footer; `kind` is the four capitals it must carry.
    pub fn open(path: &Path, kind: &[u8; 4]) -> Result<Self> {
        Self::new(path, files::open(path, 0, FileType::is_file), kind)
    }

    /// Opens the file `name` of a directory; see [`PageFile::open`].
    pub fn open_in(directory: &Directory, name: &str, kind: &[u8; 4]) -> Result<Self> {
        Self::new(&directory.join(name), directory.open_file(name, 0), kind)
    }

    fn new(path: &Path, opened: io::Result<Option<File>>, kind: &[u8; 4]) -> Result<Self> {
        let foreign = |got: String| {
            let message = format!("expected a page file of at least 8192 bytes, got {got}; check the path");
            Error::Foreign(InFile::of(path, message))
        };
        let opened = opened.map_err(|e| Error::io(path, "open", e))?;
        let file = opened.ok_or_else(|| foreign("no regular file".to_owned()))?;
        let file_bytes = file.metadata().map_err(|e| Error::io(path, "read its size", e))?.len();
        if file_bytes < 2 * PAGE_BYTES as u64 {
            return Err(foreign(format!("{file_bytes} bytes")));
        }
        let mut page = [0u8; PAGE_BYTES];
        read_exact(path, &file, &mut page, 0)?;
        let header = parse_header(path, &page, kind, file_bytes)?;
        let mut footer = [0u8; PAGE_BYTES];
        read_exact(path, &file, &mut footer, header.file_bytes - PAGE_BYTES as u64)?;
        check_own_crc(path, &footer, "footer page")?;
        if !footer.starts_with(FOOTER_MAGIC) || u64_at(&footer, 8) != header.file_bytes {
            let expected = format!("IMILLEND and {} bytes", header.file_bytes);
            return Err(Error::corrupt(path, "footer page", expected, "something else"));
        }
        Ok(PageFile { path: path.to_owned(), header, file, footer_crc: u32_at(&footer, 16) })
    }

    /// Which file this is.
    pub(crate) fn id(&self) -> Result<FileId> {
        FileId::of(&self.path, &self.file)
    }

    /// Value of a field; a missing one is damage.
    pub fn field(&self, name: &str) -> Result<u64> {
        let found = self.header.fields.iter().find(|(n, _)| n == name).map(|&(_, value)| value);
        found.ok_or_else(|| Error::corrupt(&self.path, format!("field {name:?} in the header"), "a value", "none"))
    }

    /// Whether there is such a field; later versions of the format add some.
    pub fn has_field(&self, name: &str) -> bool {
        self.header.fields.iter().any(|(known, _)| known == name)
    }

    /// Value of a field that must lie in `range`.
    pub fn field_in(&self, name: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64> {
        let value = self.field(name)?;
        if !range.contains(&value) {
            let (least, most) = (range.start(), range.end());
            let expected = if least == most { least.to_string() } else { format!("{least}..{most}") };
            return Err(Error::corrupt(&self.path, format!("field {name:?} in the header"), expected, value));
        }
        Ok(value)
    }

    /// Refuses other values of the fields.
    pub fn expect_fields<const N: usize>(&self, fields: [(&str, u64); N]) -> Result<()> {
        fields.into_iter().try_for_each(|(name, want)| self.field_in(name, want..=want).map(drop))
    }

    /// A section, which must be `payload` bytes long (any length if `None`).
    pub fn section(&self, name: &str, payload: Option<u64>) -> Result<Section> {
        let place = || format!("section {name:?} in the header");
        let Some(section) = self.header.sections.iter().find(|s| s.name == name) else {
            return Err(Error::corrupt(&self.path, place(), "an entry", "none"));
        };
        if payload.is_some_and(|want| want != section.payload) {
            let want = payload.map_or("no size that fits".to_owned(), |p| format!("{p} bytes"));
            return Err(Error::corrupt(&self.path, place(), want, section.payload));
        }
        Ok(section.clone())
    }

    /// Checksums of pages 1, 2, ...; 4 bytes of memory a page, checked against the footer. `interrupted` is asked now and
    /// then, as by the other methods that read whole sections.
    pub fn load_checksums(&self, interrupted: Stop<'_>) -> Result<Vec<u32>> {
        let section = self.section(CRC_SECTION, None)?;
        let n = usize::try_from(section.payload / 4).unwrap_or(usize::MAX);
        let mut checksums: Vec<u32> = reserve(&self.path, n)?;
        let most = (PIECE_BYTES / PAGE_BYTES) as u64;
        let (mut got, mut piece) = (0, Vec::<u8>::new());
        let (mut page, end) = (section.first_page, section.first_page + section.pages);
        while page < end {
            go_on(interrupted)?;
            piece.resize((end - page).min(most) as usize * PAGE_BYTES, 0);
            read_exact(&self.path, &self.file, &mut piece, page * PAGE_BYTES as u64)?;
            got = crc32c::crc32c_append(got, &piece);
            for of_page in piece.chunks_exact(PAGE_BYTES) {
                let left = n - checksums.len();
                if left >= PAGE_BYTES / 4 && of_page.iter().all(|&byte| byte == 0) {
                    return Err(Error::corrupt(&self.path, Place::page(page), "checksums", "zeros alone"));
                }
                checksums.extend(u32s(of_page).take(left));
                page += 1;
            }
        }
        if got != self.footer_crc {
            let expected = format!("CRC32C {:08x}", self.footer_crc);
            return Err(Error::corrupt(&self.path, "section \"crc\"", expected, format!("{got:08x}")));
        }
        Ok(checksums)
    }

    /// Reads the pages from `number` on that fill `bytes`, and checks each.
    pub(crate) fn read_pages(&self, number: u64, checksums: &[u32], bytes: &mut [u8]) -> Result<()> {
        read_exact(&self.path, &self.file, bytes, number * PAGE_BYTES as u64)?;
        for (number, page) in (number..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            check_page(&self.path, number, page, checksums.get(number as usize - 1).copied().unwrap_or(0))?;
        }
        Ok(())
    }

    /// Reads a whole section with its padding into a [`Region`], and checks every page of it.
    pub(crate) fn load_section(&self, section: &Section, checksums: &[u32], interrupted: Stop<'_>) -> Result<Region> {
        let mut region = Region::new(&self.path, (section.pages as usize).saturating_mul(PAGE_BYTES))?;
        let firsts = (section.first_page..).step_by(PIECE_BYTES / PAGE_BYTES);
        for (first, piece) in firsts.zip(region.chunks_mut(PIECE_BYTES)) {
            go_on(interrupted)?;
            self.read_pages(first, checksums, piece)?;
        }
        Ok(region)
    }

    /// Reads a whole section and only its entries of section "crc", however long the file is; returns the payload.
    pub fn read_alone(&self, section: &Section, interrupted: Stop<'_>) -> Result<Vec<u8>> {
        self.read_in_pieces(section, interrupted, |first, piece| self.read_pages_alone(first, piece))
    }

    /// Reads the pages from `number` on that fill `bytes`, and their entries of section "crc", and checks each.
    pub(crate) fn read_pages_alone(&self, number: u64, bytes: &mut [u8]) -> Result<()> {
        let mut wanted: Vec<u8> = reserve(&self.path, bytes.len() / PAGE_BYTES * 4)?;
        wanted.resize(bytes.len() / PAGE_BYTES * 4, 0);
        let crc = self.section(CRC_SECTION, None)?;
        read_exact(&self.path, &self.file, &mut wanted, crc.first_page * PAGE_BYTES as u64 + 4 * (number - 1))?;
        read_exact(&self.path, &self.file, bytes, number * PAGE_BYTES as u64)?;
        for ((number, page), want) in (number..).zip(bytes.chunks_exact(PAGE_BYTES)).zip(u32s(&wanted)) {
            check_page(&self.path, number, page, want)?;
        }
        Ok(())
    }

    /// Reads the pages from `number` on that fill `bytes`; who asks for them checks them.
    pub(crate) fn read_unchecked(&self, number: u64, bytes: &mut [u8]) -> Result<()> {
        read_exact(&self.path, &self.file, bytes, number * PAGE_BYTES as u64)
    }

    /// Reads a whole section into memory and checks every page of it; returns the payload.
    pub fn read_section(&self, section: &Section, checksums: &[u32], interrupted: Stop<'_>) -> Result<Vec<u8>> {
        self.read_in_pieces(section, interrupted, |first, piece| self.read_pages(first, checksums, piece))
    }

    /// The payload of a section; `read(page, piece)` fills a piece with pages that it checked.
    fn read_in_pieces(
        &self,
        section: &Section,
        interrupted: Stop<'_>,
        read: impl Fn(u64, &mut [u8]) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let bytes = (section.pages as usize).saturating_mul(PAGE_BYTES);
        let mut raw: Vec<u8> = reserve(&self.path, bytes)?;
        while raw.len() < bytes {
            go_on(interrupted)?;
            let start = raw.len();
            raw.resize(bytes.min(start + PIECE_BYTES), 0);
            read(section.first_page + (start / PAGE_BYTES) as u64, &mut raw[start..])?;
        }
        raw.truncate(section.payload as usize);
        Ok(raw)
    }
}

fn read_exact(path: &Path, file: &File, buffer: &mut [u8], offset: u64) -> Result<()> {
    let page = offset / PAGE_BYTES as u64;
    file.read_exact_at(buffer, offset).map_err(|e| Error::unread(path, page, e))
}
