//! Methods that wrappers forward unchanged: all except reads and writes of bytes.

/// Forwards the lookup methods of [`Backend`](crate::Backend) to `self.below()`.
macro_rules! forward_lookups {
    () => {
        fn stat(&self, path: &std::path::Path) -> crate::Result<crate::Entry> {
            self.below().stat(path)
        }

        fn probe(&self) -> crate::Result<Option<String>> {
            self.below().probe()
        }

        fn list(&self, path: &std::path::Path) -> crate::Result<Vec<crate::Entry>> {
            self.below().list(path)
        }

        fn walk(
            &self,
            path: &std::path::Path,
            recursive: bool,
            found: &mut crate::FoundEntry<'_>,
        ) -> crate::Result<u64> {
            self.below().walk(path, recursive, found)
        }

        fn read_link(&self, path: &std::path::Path) -> crate::Result<std::path::PathBuf> {
            self.below().read_link(path)
        }
    };
}
pub(crate) use forward_lookups;

/// Forwards the methods of [`Backend`](crate::Backend) that change names and attributes to
/// `self.below()`.
macro_rules! forward_tree {
    () => {
        fn create_directory(
            &self,
            path: &std::path::Path,
            mode: u32,
            owner: Option<crate::Owner>,
        ) -> crate::Result<()> {
            self.below().create_directory(path, mode, owner)
        }

        fn remove_file(&self, path: &std::path::Path) -> crate::Result<()> {
            self.below().remove_file(path)
        }

        fn remove_directory(&self, path: &std::path::Path) -> crate::Result<()> {
            self.below().remove_directory(path)
        }

        fn rename(
            &self,
            from: &std::path::Path,
            to: &std::path::Path,
            how: crate::Rename,
        ) -> crate::Result<()> {
            self.below().rename(from, to, how)
        }

        fn rename_with(
            &self,
            from: &std::path::Path,
            to: &std::path::Path,
            how: crate::Rename,
            attributes: &crate::SetAttributes,
        ) -> crate::Result<()> {
            self.below().rename_with(from, to, how, attributes)
        }

        fn link(&self, from: &std::path::Path, to: &std::path::Path) -> crate::Result<()> {
            self.below().link(from, to)
        }

        fn symlink(
            &self,
            target: &std::path::Path,
            path: &std::path::Path,
            owner: Option<crate::Owner>,
        ) -> crate::Result<()> {
            self.below().symlink(target, path, owner)
        }

        fn create_node(
            &self,
            path: &std::path::Path,
            kind: crate::EntryKind,
            mode: u32,
            special_device: u64,
            owner: Option<crate::Owner>,
        ) -> crate::Result<()> {
            self.below().create_node(path, kind, mode, special_device, owner)
        }

        fn set_attributes(
            &self,
            path: &std::path::Path,
            attributes: &crate::SetAttributes,
        ) -> crate::Result<()> {
            self.below().set_attributes(path, attributes)
        }

        fn statfs(&self) -> crate::Result<crate::StatFs> {
            self.below().statfs()
        }

        fn sync_directory(&self, path: &std::path::Path) -> crate::Result<()> {
            self.below().sync_directory(path)
        }

        fn stray_uploads(&self) -> crate::Result<Vec<crate::Upload>> {
            self.below().stray_uploads()
        }

        fn abort_upload(&self, upload: &crate::Upload) -> crate::Result<()> {
            self.below().abort_upload(upload)
        }

        crate::wrap::forward_xattrs!();
    };
}
pub(crate) use forward_tree;

/// Forwards the methods for extended attributes.
macro_rules! forward_xattrs {
    () => {
        fn xattr(&self, path: &std::path::Path, name: &std::ffi::OsStr) -> crate::Result<Vec<u8>> {
            self.below().xattr(path, name)
        }

        fn list_xattrs(&self, path: &std::path::Path) -> crate::Result<Vec<std::ffi::OsString>> {
            self.below().list_xattrs(path)
        }

        fn set_xattr(
            &self,
            path: &std::path::Path,
            name: &std::ffi::OsStr,
            value: &[u8],
            how: crate::SetXattr,
        ) -> crate::Result<()> {
            self.below().set_xattr(path, name, value, how)
        }

        fn remove_xattr(&self, path: &std::path::Path, name: &std::ffi::OsStr) -> crate::Result<()> {
            self.below().remove_xattr(path, name)
        }
    };
}
pub(crate) use forward_xattrs;

/// Implements `Backend` for a public wrapper by its field `store`.
macro_rules! backend_by_field {
    ($name:ident) => {
        impl $name {
            fn below(&self) -> &dyn crate::Backend {
                &self.store
            }
        }

        impl crate::Backend for $name {
            fn url(&self) -> &str {
                self.store.url()
            }

            fn profile(&self) -> crate::Profile {
                self.store.profile()
            }

            fn network(&self) -> Option<crate::NetworkStats> {
                self.store.network()
            }

            fn disk(&self) -> Option<crate::DiskStats> {
                self.store.disk()
            }

            fn open(&self, path: &std::path::Path) -> crate::Result<std::sync::Arc<dyn crate::Object>> {
                self.store.open(path)
            }

            fn open_write(
                &self,
                path: &std::path::Path,
                how: &crate::OpenWrite,
            ) -> crate::Result<std::sync::Arc<dyn crate::WriteObject>> {
                self.store.open_write(path, how)
            }

            crate::wrap::forward_lookups!();
            crate::wrap::forward_tree!();
        }
    };
}
pub(super) use backend_by_field;
