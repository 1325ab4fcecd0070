//! Checksums as S3 sends them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use sha2::{Digest as _, Sha256};

use super::bucket::Stored;

bowwave_core::named_enum! {
    /// The algorithm of an object's checksums, by its name in `x-amz-checksum-…`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Checksum {
        /// CRC-32 of ISO 3309.
        Crc32 = "crc32",
        /// CRC-32C, the one of iSCSI.
        Crc32c = "crc32c",
        /// CRC-64 of NVMe.
        Crc64Nvme = "crc64nvme",
        /// SHA-256.
        Sha256 = "sha256",
    }
}

impl Checksum {
    /// The checksum of `bytes`, big-endian, in base64.
    pub fn of(self, bytes: &[u8]) -> String {
        STANDARD.encode(self.raw(bytes))
    }

    fn raw(self, bytes: &[u8]) -> Vec<u8> {
        let crc = |algorithm, width: usize| {
            crc_fast::checksum(algorithm, bytes).to_be_bytes()[8 - width..].to_vec()
        };
        match self {
            Self::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc, 4),
            Self::Crc32c => crc(CrcAlgorithm::Crc32Iscsi, 4),
            Self::Crc64Nvme => crc(CrcAlgorithm::Crc64Nvme, 8),
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
        }
    }

    /// The checksum of an object and its type. Multipart objects have checksums of checksums,
    /// except with CRC-64, which S3 computes over the whole object only.
    pub(super) fn of_object(self, object: &Stored) -> (String, &'static str) {
        if object.parts.is_empty() || self == Self::Crc64Nvme {
            return (self.of(&object.bytes), "FULL_OBJECT");
        }
        let sums: Vec<u8> =
            parts(object).flat_map(|(from, end)| self.raw(&object.bytes[from..end])).collect();
        (format!("{}-{}", self.of(&sums), object.parts.len()), "COMPOSITE")
    }

    /// The response to `GetObjectAttributes` of `object`.
    pub(super) fn attributes(self, object: &Stored) -> String {
        let tag = format!("Checksum{}", self.name().to_ascii_uppercase());
        let (sum, kind) = self.of_object(object);
        let mut xml = format!(
            "<GetObjectAttributesResponse><ETag>{}</ETag><Checksum><{tag}>{sum}</{tag}>\
             <ChecksumType>{kind}</ChecksumType></Checksum>",
            object.etag.trim_matches('"')
        );
        if !object.parts.is_empty() {
            xml.push_str("<ObjectParts><IsTruncated>false</IsTruncated>");
            for (index, (from, end)) in parts(object).enumerate() {
                let sum = self.of(&object.bytes[from..end]);
                xml.push_str(&format!(
                    "<Part><PartNumber>{}</PartNumber><Size>{}</Size><{tag}>{sum}</{tag}></Part>",
                    index + 1,
                    end - from
                ));
            }
            xml.push_str(&format!("<PartsCount>{}</PartsCount></ObjectParts>", object.parts.len()));
        }
        xml.push_str(&format!(
            "<StorageClass>STANDARD</StorageClass><ObjectSize>{}</ObjectSize></GetObjectAttributesResponse>",
            object.bytes.len()
        ));
        xml
    }
}

/// Half-open ranges of an object's parts; none for an object that one PUT created.
pub(super) fn parts(object: &Stored) -> impl Iterator<Item = (usize, usize)> {
    object.parts.iter().scan(0, |end, size| {
        let from = *end;
        *end += size;
        Some((from, *end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_have_their_published_check_values() {
        let check = |sum: Checksum| sum.raw(b"123456789");
        assert_eq!(check(Checksum::Crc32), 0xCBF4_3926u32.to_be_bytes());
        assert_eq!(check(Checksum::Crc32c), 0xE306_9283u32.to_be_bytes());
        assert_eq!(check(Checksum::Crc64Nvme), 0xAE8B_1486_0A79_9888u64.to_be_bytes());
        assert_eq!(Checksum::Sha256.of(b""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}
