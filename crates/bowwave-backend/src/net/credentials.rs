//! Credentials of object stores: found before the first request, so that missing ones are reported
//! at once.

use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::{Credentials, Error, ErrorKind, Result};

/// The environment; tests use another.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Source of S3 keys.
#[derive(Debug)]
pub(super) enum Aws {
    /// These keys.
    Keys(Credentials),
    /// Variables or a service that the library queries itself.
    Library,
}

/// Finds S3 keys: variables, a container's or a web identity's service, the profile file, an EC2
/// machine.
pub(super) fn aws(url: &str, environment: Environment<'_>, vendor: Option<&str>) -> Result<Aws> {
    let set = |name: &str| environment(name).map(Zeroizing::new).is_some_and(|value| !value.is_empty());
    let keys = (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY"));
    if keys == (true, true)
        || set("AWS_WEB_IDENTITY_TOKEN_FILE") && set("AWS_ROLE_ARN")
        || set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        || set("AWS_CONTAINER_CREDENTIALS_FULL_URI")
        || set("AWS_METADATA_ENDPOINT")
    {
        return Ok(Aws::Library);
    }
    if keys.0 != keys.1 {
        let (have, want) = if keys.0 { (AWS_KEYS[0], AWS_KEYS[1]) } else { (AWS_KEYS[1], AWS_KEYS[0]) };
        return Err(unauthenticated(url, &format!("{have} is set but not {want}; set both")));
    }
    if let Some(keys) = profile(environment) {
        return Ok(Aws::Keys(keys));
    }
    if vendor.is_some_and(|vendor| vendor.contains("Amazon")) {
        return Ok(Aws::Library);
    }
    let remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN if it is temporary)";
    Err(unauthenticated(url, &format!("no S3 credentials; {remedy}")))
}

/// Fails without credentials for Google's storage.
pub(super) fn google(url: &str, environment: Environment<'_>, vendor: Option<&str>) -> Result<()> {
    let default = environment("HOME")
        .map(|home| PathBuf::from(home).join(".config/gcloud/application_default_credentials.json"));
    let names = [
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ];
    let known = is_one_set(environment, &names)
        || default.is_some_and(|file| file.is_file())
        || vendor.is_some_and(|vendor| vendor.contains("Google"));
    require(known, url, "Google", "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT to a key file")
}

/// Fails without credentials for Azure's storage.
pub(super) fn azure(url: &str, environment: Environment<'_>, vendor: Option<&str>) -> Result<()> {
    let names = [
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_TOKEN",
        "AZURE_STORAGE_CLIENT_ID",
        "AZURE_CLIENT_ID",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_USE_AZURE_CLI",
        "IDENTITY_ENDPOINT",
    ];
    let known = is_one_set(environment, &names) || vendor.is_some_and(|vendor| vendor.contains("Microsoft"));
    let variables = "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_SAS_KEY)";
    require(known, url, "Azure", variables)
}

fn is_one_set(environment: Environment<'_>, names: &[&str]) -> bool {
    names.iter().any(|name| environment(name).map(Zeroizing::new).is_some())
}

fn require(known: bool, url: &str, cloud: &str, variables: &str) -> Result<()> {
    let why = || format!("no {cloud} credentials; set {variables}, or read public data anonymously");
    if known { Ok(()) } else { Err(unauthenticated(url, &why())) }
}

/// Vendor of this machine: clouds set their name there, and only clouds have a metadata service.
pub(super) fn vendor() -> Option<String> {
    std::fs::read_to_string("/sys/class/dmi/id/sys_vendor").ok()
}

/// Keys of the profile `AWS_PROFILE` (or `default`) in the shared credentials file.
fn profile(environment: Environment<'_>) -> Option<Credentials> {
    let file = match environment("AWS_SHARED_CREDENTIALS_FILE") {
        Some(file) => PathBuf::from(file),
        None => PathBuf::from(environment("HOME")?).join(".aws/credentials"),
    };
    let wanted = environment("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
    keys_in(&Zeroizing::new(std::fs::read_to_string(file).ok()?), &wanted)
}

fn keys_in(text: &str, wanted: &str) -> Option<Credentials> {
    let (mut section, mut id, mut secret, mut token) = ("", None, None, None);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim();
        } else if section == wanted
            && let Some((key, value)) = line.split_once('=')
        {
            match (key.trim(), value.trim()) {
                ("aws_access_key_id", value) => id = Some(value),
                ("aws_secret_access_key", value) => secret = Some(value),
                ("aws_session_token", value) => token = Some(value),
                _ => {}
            }
        }
    }
    // Copied last, so that there is one copy to overwrite.
    Some(Credentials::Amazon {
        access_key_id: id?.to_owned(),
        secret_access_key: secret?.to_owned(),
        session_token: token.map(str::to_owned),
    })
}

fn unauthenticated(url: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unauthenticated, format!("{url}: {why}"))
}

const AWS_KEYS: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_credentials_are_told_with_the_names_of_the_variables() {
        let none = |_: &str| None;
        for (error, name) in [
            (aws("s3://b", &none, None).unwrap_err(), "AWS_ACCESS_KEY_ID"),
            (google("gs://b", &none, None).unwrap_err(), "GOOGLE_APPLICATION_CREDENTIALS"),
            (azure("az://b", &none, None).unwrap_err(), "AZURE_STORAGE_ACCOUNT_KEY"),
            (aws("s3://b", &|name| (name == AWS_KEYS[0]).then(String::new), None).unwrap_err(), "AWS_SECRET"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Unauthenticated);
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn half_a_key_pair_is_an_error_and_a_cloud_machine_may_ask_its_service() {
        let half = |name: &str| (name == AWS_KEYS[1]).then(|| "secret".to_owned());
        let error = aws("s3://b", &half, None).unwrap_err();
        assert!(
            error.to_string().contains("AWS_SECRET_ACCESS_KEY is set but not AWS_ACCESS_KEY_ID"),
            "{error}"
        );
        assert!(matches!(aws("s3://b", &|_| None, Some("Amazon EC2")), Ok(Aws::Library)));
        assert!(google("gs://b", &|_| None, Some("Google")).is_ok());
    }

    #[test]
    fn the_profile_file_is_read_by_section() {
        let text =
            "[other]\naws_access_key_id=no\n[mine]\naws_access_key_id = id\n aws_secret_access_key=a=b\n";
        let keys = keys_in(text, "mine").unwrap();
        let Credentials::Amazon { access_key_id, secret_access_key, .. } = &keys else { panic!("{keys:?}") };
        assert_eq!((access_key_id.as_str(), secret_access_key.as_str()), ("id", "a=b"));
        assert!(keys_in(text, "other").is_none());
        assert!(!format!("{keys:?}").contains("a=b"), "secrets are not shown");
    }

    /// Reads its own memory where the secret was: without wiping, all but the first bytes would
    /// still be there.
    #[test]
    fn credentials_are_overwritten_when_they_are_dropped() {
        use std::os::unix::fs::FileExt as _;
        let secret = "so secret, ".repeat(6000);
        let keys = Credentials::Amazon {
            access_key_id: "id".to_owned(),
            secret_access_key: secret.clone(),
            session_token: Some(secret.clone()),
        };
        let memory = std::fs::File::open("/proc/self/mem").expect("this process's own");
        let Credentials::Amazon { secret_access_key, session_token: Some(token), .. } = &keys else {
            unreachable!("made above")
        };
        let places = [secret_access_key.as_ptr().addr() as u64, token.as_ptr().addr() as u64];
        drop(keys);
        for place in places {
            let mut bytes = vec![0; 20_000];
            // The allocator may have unmapped the pages.
            if memory.read_exact_at(&mut bytes, place + 20_000).is_ok() {
                assert!(!String::from_utf8_lossy(&bytes).contains("so secret, so secret"));
            }
        }
    }
}
