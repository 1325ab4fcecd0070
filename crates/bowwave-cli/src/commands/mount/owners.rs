//! Owners, modes and times of files in stores that have none.

use bowwave_backend::Writes;
use bowwave_fuse::{Metadata, MountOptions};

use crate::Failure;
use crate::setup::Opened;

/// Options for files of stores without owners and modes.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Owners and modes")]
pub(super) struct OwnerArgs {
    /// What to do with modes, owners and times that programs set on objects; by default store if
    /// possible, else ignore
    ///
    /// Only S3 can store them. docs/guide-objects.md has the cost of each.
    #[arg(long, value_enum, value_name = "HOW", hide_short_help = true)]
    metadata: Option<Keeping>,

    /// User that owns the files; without it, the user that mounts
    #[arg(long, value_name = "N", hide_short_help = true)]
    uid: Option<u32>,

    /// Group that owns the files; without it, the group of the user that mounts
    #[arg(long, value_name = "N", hide_short_help = true)]
    gid: Option<u32>,

    /// Permission bits that no file and no directory has, in octal
    #[arg(long, value_name = "MODE", hide_short_help = true, value_parser = permissions)]
    umask: Option<u32>,

    /// Permission bits of files, in octal; without it, 644
    #[arg(long, value_name = "MODE", hide_short_help = true, value_parser = permissions)]
    file_mode: Option<u32>,

    /// Permission bits of directories, in octal; without it, 755
    #[arg(long, value_name = "MODE", hide_short_help = true, value_parser = permissions)]
    dir_mode: Option<u32>,
}

/// What happens to attributes that programs set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Keeping {
    /// Setting them succeeds and changes nothing
    Ignore,
    /// In the metadata of objects, as s3fs and rclone do
    Store,
    /// Setting them fails
    Refuse,
}

impl OwnerArgs {
    /// What happens to attributes in this store.
    pub(super) fn metadata_of(&self, opened: &Opened) -> Result<Metadata, Failure> {
        let (profile, url) = (opened.store.profile(), opened.store.url());
        if profile.writes == Writes::Anywhere || profile.kind.ends_with("file") {
            let why = "this store has owners, modes and times of its own, which are shown";
            return match self.given() {
                Some(option) => Err(usage!("{option}: {url}: {why}; leave it out")),
                None => Ok(Metadata::Refuse),
            };
        }
        match self.metadata {
            Some(Keeping::Store) if !profile.attributes => Err(usage!(
                "--metadata store: {url}: only S3 can store modes, owners and times; use --metadata ignore or refuse"
            )),
            Some(Keeping::Refuse) => Ok(Metadata::Refuse),
            Some(Keeping::Store) | None if profile.attributes => Ok(Metadata::Store),
            _ => Ok(Metadata::Ignore),
        }
    }

    /// Whether a bucket may be taken to have no stored attributes: `--metadata` was not given.
    pub(super) fn assumes_plain(&self) -> bool {
        self.metadata.is_none()
    }

    /// Whether S3 is to store attributes.
    pub(super) fn stores_attributes(&self) -> bool {
        matches!(self.metadata, None | Some(Keeping::Store))
    }

    /// `options` with the given owner and modes.
    pub(super) fn add_to(&self, options: MountOptions) -> MountOptions {
        MountOptions {
            uid: self.uid,
            gid: self.gid,
            file_mode: self.mode(self.file_mode, 0o666),
            dir_mode: self.mode(self.dir_mode, 0o777),
            ..options
        }
    }

    /// With a umask of 0022, 666 and 777 become 644 and 755.
    fn mode(&self, given: Option<u32>, all: u32) -> Option<u32> {
        let mode = given.or_else(|| self.umask.map(|_| all));
        mode.map(|mode| mode & !self.umask.unwrap_or(0))
    }

    /// The first option that is given.
    fn given(&self) -> Option<&'static str> {
        [
            ("--metadata", self.metadata.is_some()),
            ("--uid", self.uid.is_some()),
            ("--gid", self.gid.is_some()),
            ("--umask", self.umask.is_some()),
            ("--file-mode", self.file_mode.is_some()),
            ("--dir-mode", self.dir_mode.is_some()),
        ]
        .into_iter()
        .find_map(|(name, is_given)| is_given.then_some(name))
    }
}

/// Permission bits in octal.
fn permissions(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "must be an octal number from 0 to 777, such as 644".to_owned())
}
