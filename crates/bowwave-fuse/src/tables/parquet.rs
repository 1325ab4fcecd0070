//! Parquet footers: where the column chunks of a file are.
//!
//! A file ends with a footer, the footer's length in four bytes, and `PAR1`. The footer has the
//! file's metadata in Thrift's compact protocol; `parquet.thrift` of the Parquet format has its
//! structures.

use std::ops::Range;

use super::Extent;

/// The last bytes of a file.
const MAGIC: &[u8; 4] = b"PAR1";
/// Bytes after the footer: its length and the magic number.
const TRAILER_BYTES: u64 = 8;
/// Maximum depth of nested structures and lists; a Parquet footer has about ten.
const DEPTH_MAX: u32 = 64;

/// The range of the footer in a file of `size` bytes, from the `last` bytes of the file. `None` if
/// it is not a Parquet file, or its footer is encrypted.
pub(crate) fn footer_range(last: &[u8], size: u64) -> Option<Range<u64>> {
    let trailer = last.last_chunk::<8>()?;
    let (length, magic) = trailer.split_first_chunk::<4>()?;
    let end = size.checked_sub(TRAILER_BYTES)?;
    let start = end.checked_sub(u32::from_le_bytes(*length).into())?;
    (magic == MAGIC && start >= MAGIC.len() as u64).then_some(start..end)
}

/// The column chunks of a footer, by row group and column. The footer begins at `end`. `None` if it
/// is damaged, if a chunk extends into it, or if it has more than `most` chunks.
pub(crate) fn column_chunks(footer: &[u8], end: u64, most: usize) -> Option<Vec<Extent>> {
    let mut chunks = Vec::new();
    let mut reader = Reader { rest: footer, depth: 0 };
    reader.structure(|reader, field| match field {
        Field { number: 4, kind: LIST } => {
            let mut row_group = 0;
            reader.list(|reader| {
                row_group += 1;
                reader.row_group(row_group - 1, (end, most), &mut chunks)
            })
        }
        _ => reader.skip(field.kind),
    })?;
    Some(chunks)
}

#[derive(Clone, Copy)]
struct Field {
    number: i16,
    kind: u8,
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// Reads Thrift's compact protocol. Methods return `None` for damaged data.
struct Reader<'a> {
    rest: &'a [u8],
    depth: u32,
}

impl Reader<'_> {
    fn row_group(
        &mut self,
        row_group: u32,
        (end, most): (u64, usize),
        chunks: &mut Vec<Extent>,
    ) -> Option<()> {
        self.structure(|reader, field| match field {
            Field { number: 1, kind: LIST } => {
                let mut column = 0;
                reader.list(|reader| {
                    column += 1;
                    let Some(bytes) = reader.column_chunk()? else { return Some(()) };
                    (bytes.end <= end && chunks.len() < most).then(|| {
                        chunks.push(Extent { bytes, group: row_group, column: column - 1 });
                    })
                })
            }
            _ => reader.skip(field.kind),
        })
    }

    /// The bytes of a column chunk, unless they are in another file or its metadata is encrypted.
    fn column_chunk(&mut self) -> Option<Option<Range<u64>>> {
        let (mut bytes, mut elsewhere) = (None, false);
        self.structure(|reader, field| match field {
            // The path of another file that has the bytes.
            Field { number: 1, kind: BINARY } => {
                elsewhere = true;
                reader.skip(field.kind)
            }
            Field { number: 3, kind: STRUCT } => {
                bytes = reader.column_metadata()?;
                Some(())
            }
            _ => reader.skip(field.kind),
        })?;
        Some(bytes.filter(|_| !elsewhere))
    }

    /// The bytes of a column chunk, if it has any.
    fn column_metadata(&mut self) -> Option<Option<Range<u64>>> {
        let (mut start, mut length) = (u64::MAX, 0);
        self.structure(|reader, field| match field {
            Field { number: 7, kind: I64 } => {
                length = u64::try_from(reader.zigzag()?).ok()?;
                Some(())
            }
            // Offsets of first data page, index page, dictionary page. Writers write 0 for none.
            Field { number: 9..=11, kind: I64 } => {
                let offset = u64::try_from(reader.zigzag()?).ok()?;
                start = if offset > 0 { start.min(offset) } else { start };
                Some(())
            }
            _ => reader.skip(field.kind),
        })?;
        match length {
            0 => Some(None),
            _ => Some(Some(start..start.checked_add(length)?)),
        }
    }

    /// Calls `each` for each field of a structure. `each` must read the field's value.
    fn structure(&mut self, mut each: impl FnMut(&mut Self, Field) -> Option<()>) -> Option<()> {
        self.depth += 1;
        let mut number = 0_i16;
        loop {
            let head = self.byte()?;
            if head == 0 || self.depth > DEPTH_MAX {
                self.depth -= 1;
                return (head == 0).then_some(());
            }
            number = match head >> 4 {
                0 => i16::try_from(self.zigzag()?).ok()?,
                more => number.checked_add(more.into())?,
            };
            each(self, Field { number, kind: head & 15 })?;
        }
    }

    /// Calls `each` for the elements of a list of structures.
    fn list(&mut self, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        let (count, kind) = self.list_head()?;
        if kind != STRUCT {
            return None;
        }
        (0..count).try_for_each(|_| each(self))
    }

    fn list_head(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        Some((count, head & 15))
    }

    /// Skips a value of a field.
    fn skip(&mut self, kind: u8) -> Option<()> {
        match kind {
            // The head of a field contains the value.
            TRUE | FALSE => Some(()),
            _ => self.skip_element(kind),
        }
    }

    /// Skips an element of a list, set or map.
    fn skip_element(&mut self, kind: u8) -> Option<()> {
        match kind {
            TRUE | FALSE | BYTE => self.bytes(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.bytes(8),
            BINARY => {
                let length = self.varint()?;
                self.bytes(length)
            }
            LIST | SET => {
                let (count, kind) = self.list_head()?;
                self.nested(|reader| (0..count).try_for_each(|_| reader.skip_element(kind)))
            }
            MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                self.nested(|reader| {
                    (0..count).try_for_each(|_| {
                        reader.skip_element(kinds >> 4)?;
                        reader.skip_element(kinds & 15)
                    })
                })
            }
            STRUCT => self.structure(|reader, field| reader.skip(field.kind)),
            _ => None,
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        read(self)?;
        self.depth -= 1;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn bytes(&mut self, count: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use bowwave_core::Random;

    fn varint(mut value: u64, out: &mut Vec<u8>) {
        while value > 127 {
            out.push(value as u8 | 128);
            value >>= 7;
        }
        out.push(value as u8);
    }

    fn zigzag(value: i64, out: &mut Vec<u8>) {
        varint((value << 1 ^ value >> 63).cast_unsigned(), out);
    }

    fn list_head(count: usize, kind: u8, out: &mut Vec<u8>) {
        match u8::try_from(count) {
            Ok(count @ 0..15) => out.push(count << 4 | kind),
            _ => {
                out.push(15 << 4 | kind);
                varint(count as u64, out);
            }
        }
    }

    /// A footer with fields that the reader skips: before, between and after those that it reads.
    pub(crate) fn footer(row_groups: &[Vec<Range<u64>>]) -> Vec<u8> {
        let mut out = vec![1 << 4 | I32, 4];
        // The schema: one element, with a name and a nested structure.
        out.push(1 << 4 | LIST);
        list_head(1, STRUCT, &mut out);
        out.extend([4 << 4 | BINARY, 3, b'a', b'b', b'c', 6 << 4 | STRUCT, 1 << 4 | TRUE, 0, 0]);
        out.extend([1 << 4 | I64, 20, 1 << 4 | LIST]);
        list_head(row_groups.len(), STRUCT, &mut out);
        for columns in row_groups {
            out.push(1 << 4 | LIST);
            list_head(columns.len(), STRUCT, &mut out);
            for bytes in columns {
                out.extend([2 << 4 | I64, 0, 1 << 4 | STRUCT]);
                // Type, encodings and path, then sizes and offsets.
                out.extend([1 << 4 | I32, 2, 1 << 4 | LIST, 2 << 4 | I32, 0, 6]);
                out.extend([1 << 4 | LIST, 1 << 4 | BINARY, 1, b'c', 3 << 4 | I64]);
                zigzag(1 << 40, &mut out);
                out.push(1 << 4 | I64);
                zigzag((bytes.end - bytes.start).cast_signed(), &mut out);
                out.push(2 << 4 | I64);
                zigzag(bytes.start.cast_signed() + 100, &mut out);
                // A dictionary page before the data pages. The field's number is in full, no delta.
                out.push(I64);
                zigzag(11, &mut out);
                zigzag(bytes.start.cast_signed(), &mut out);
                out.extend([0, 0]);
            }
            out.extend([1 << 4 | I64, 0, 0]);
        }
        // A map: no field of the format is one today, but a reader must skip it.
        out.extend([1 << 4 | MAP, 1, BINARY << 4 | I32, 1, b'k', 0, 0]);
        out
    }

    /// The end of a file: its footer, the footer's length and the magic number.
    pub(crate) fn tail(row_groups: &[Vec<Range<u64>>]) -> Vec<u8> {
        let mut out = footer(row_groups);
        let length = u32::try_from(out.len()).expect("short");
        out.extend(length.to_le_bytes());
        out.extend(MAGIC);
        out
    }

    fn groups() -> Vec<Vec<Range<u64>>> {
        let column = |group: u64, column: u64| {
            let start = 4 + group * 3000 + column * 100;
            start..start + 100
        };
        (0..20).map(|group| (0..30).map(|at| column(group, at)).collect()).collect()
    }

    #[test]
    fn chunks_are_those_of_the_footer() {
        let groups = groups();
        let found = column_chunks(&footer(&groups), 1 << 20, 1000).expect("a footer");
        let expected = groups.iter().enumerate().flat_map(|(row_group, columns)| {
            columns.iter().enumerate().map(move |(column, bytes)| Extent {
                bytes: bytes.clone(),
                group: row_group as u32,
                column: column as u32,
            })
        });
        assert_eq!(found, expected.collect::<Vec<_>>());
        assert_eq!(column_chunks(&footer(&groups), 5000, 1000), None, "chunks are before the footer");
    }

    #[test]
    fn the_footer_is_found_from_the_last_bytes() {
        let tail = tail(&groups());
        let length = tail.len() as u64;
        assert_eq!(footer_range(&tail[tail.len() - 8..], 70_000), Some(70_000 - length..69_992));
        assert_eq!(footer_range(&tail, length + 4), Some(4..length - 4));
        assert_eq!(footer_range(&tail, length + 3), None, "it would begin in the file's first bytes");
        assert_eq!(footer_range(&tail[tail.len() - 7..], 70_000), None);
        assert_eq!(footer_range(b"\x10\0\0\0PARE", 70_000), None, "an encrypted footer");
        assert_eq!(footer_range(b"\xff\xff\xff\xffPAR1", 70_000), None);
    }

    /// The reader rejects damaged footers, or finds other chunks. It never panics or takes long.
    #[test]
    fn damaged_footers_do_not_panic() {
        let whole = footer(&groups()[..3]);
        for length in 0..whole.len() {
            assert_eq!(column_chunks(&whole[..length], u64::MAX, 1000), None, "{length} bytes");
        }
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            let mut damaged = whole.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(damaged.len() as u64) as usize;
                damaged[at] = random.below(256) as u8;
            }
            let _others = column_chunks(&damaged, 1 << 20, 1000);
        }
        let nested = [1 << 4 | STRUCT].repeat(100_000);
        assert_eq!(column_chunks(&nested, 1 << 20, 1000), None);
        let lists = [1 << 4 | LIST].into_iter().chain([1 << 4 | LIST].repeat(100_000)).collect::<Vec<_>>();
        assert_eq!(column_chunks(&lists, 1 << 20, 1000), None);
    }
}
