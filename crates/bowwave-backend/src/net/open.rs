//! Opens a store from a cloud's URL.

use std::mem::take;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, HeaderValue};
use md5::{Digest as _, Md5};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, Checksum};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::multipart::MultipartStore;
use object_store::{ObjectStore, RetryConfig, StaticCredentialProvider};
use url::Url;

use super::cloud::{Cloud, Kind, Parts, Uploads, Waiting};
use super::connector::Connector;
use super::credentials::{self, Aws, Environment, vendor};
use super::errors::chain;
use super::exchange::Client;
use super::name_cache::NameCache;
use super::object::ObjectBackend;
use super::stat_ahead::StatAhead;
use super::wire::{Signer, Wire};
use crate::{Credentials, Error, ErrorKind, Options, Result};

/// Opens `SCHEME://BUCKET[/PREFIX]`; sends no request yet.
///
/// # Errors
/// `InvalidUrl` if URL or options cannot be parsed, `Unauthenticated` without credentials.
pub(crate) fn open(url: &str, scheme: &str, rest: &str, options: &Options) -> Result<ObjectBackend> {
    let invalid = |why: &str| Error::new(ErrorKind::InvalidUrl, format!("{url}: {why}"));
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() || bucket.contains(['@', '?', '#']) {
        return Err(invalid(&format!("wants a bucket, such as {scheme}://bucket/prefix")));
    }
    if let Some(keys) = options.credentials.as_ref().filter(|keys| keys.scheme() != scheme) {
        return Err(invalid(&format!("the keys given are for {}://", keys.scheme())));
    }
    let prefix = prefix.trim_end_matches('/');
    let slots = options.connections.unwrap_or(SLOTS).max(1);
    let place = format!("{scheme}://{bucket}");
    let client = Client::new(options, slots);
    let setting = Setting { url, bucket, options, connector: Connector { place: place.clone(), client } };
    let environment: Environment<'_> = &|name| std::env::var(name).ok();
    let cloud = match scheme {
        "s3" => setting.amazon(environment)?,
        "gs" => setting.google(environment)?,
        _ => setting.azure(environment)?,
    };
    let prefix = object_store::path::Path::parse(prefix).map_err(|error| invalid(&chain(&error)))?;
    Ok(ObjectBackend::new(&place, prefix, cloud, slots, options))
}

struct Setting<'a> {
    url: &'a str,
    bucket: &'a str,
    options: &'a Options,
    connector: Connector,
}

impl Setting<'_> {
    fn amazon(self, environment: Environment<'_>) -> Result<Cloud> {
        let options = self.options;
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(self.bucket);
        let endpoint = options.endpoint.clone().or_else(|| {
            ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]
                .iter()
                .find_map(|name| environment(name))
        });
        if let Some(endpoint) = &endpoint {
            let endpoint = self.checked(endpoint, environment("AWS_ALLOW_HTTP"))?;
            // Under both names: the environment may set the more specific one, which would win.
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, &endpoint).with_endpoint(endpoint);
        }
        if let Some(region) = options.region.clone().or_else(|| environment("AWS_REGION")) {
            builder = builder.with_region(region);
        }
        if let Some(path_style) = options.path_style {
            builder = builder.with_virtual_hosted_style_request(!path_style);
        }
        let anonymous =
            options.anonymous || environment("AWS_SKIP_SIGNATURE").is_some_and(|value| truth(&value));
        let keys = match (&options.credentials, anonymous) {
            (_, true) => {
                builder = builder.with_skip_signature(true);
                None
            }
            (Some(keys), _) => Some(keys.clone()),
            (None, false) => match credentials::aws(self.url, environment, vendor().as_deref())? {
                Aws::Keys(keys) => Some(keys),
                Aws::Library => None,
            },
        };
        if let Some(keys) = keys.and_then(fixed) {
            builder = builder.with_credentials(Arc::new(keys));
        }
        let setting = |key| builder.get_config_value(&key);
        let region = setting(AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".to_owned());
        // As the library builds it.
        let virtual_host = setting(AmazonS3ConfigKey::VirtualHostedStyleRequest).is_some_and(|v| truth(&v));
        let given = setting(AmazonS3ConfigKey::S3Endpoint).or_else(|| setting(AmazonS3ConfigKey::Endpoint));
        let bucket = self.bucket;
        let base = match (given, virtual_host) {
            (Some(endpoint), true) => endpoint,
            (Some(endpoint), false) => format!("{}/{bucket}", endpoint.trim_end_matches('/')),
            (None, true) => format!("https://{bucket}.s3.{region}.amazonaws.com"),
            (None, false) => format!("https://s3.{region}.amazonaws.com/{bucket}"),
        };
        let unsigned = setting(AmazonS3ConfigKey::SkipSignature).is_some_and(|v| truth(&v));
        let writing = encryption(&builder);
        // All servers support single deletes; nothing here deletes in bulk.
        builder = builder.with_disable_bulk_delete(true).with_retry(no_retries());
        builder = builder.with_http_connector(self.connector.clone());
        let build = |builder: AmazonS3Builder| builder.build().map_err(|error| self.refused(&error));
        let plain = Arc::new(build(builder.clone())?);
        let store = match options.verify {
            // Each part is sent with its checksum. The store keeps the object's checksum for
            // readers.
            true => {
                let builder = builder.with_credentials(Arc::clone(plain.credentials()));
                Arc::new(build(builder.with_checksum_algorithm(Checksum::CRC64NVME))?)
            }
            false => Arc::clone(&plain),
        };
        let signer = match unsigned {
            true => Signer::Nobody,
            false => Signer::Amazon { credentials: Arc::clone(store.credentials()), region },
        };
        let mut cloud = self.cloud(Kind::Amazon, Arc::clone(&store) as _, store, base, signer);
        cloud.parts.copied = plain;
        cloud.wire.always = payer(environment);
        cloud.wire.reading = customer_key(environment, self.url)?;
        cloud.wire.writing = writing;
        Ok(cloud)
    }

    fn google(self, environment: Environment<'_>) -> Result<Cloud> {
        let mut builder = GoogleCloudStorageBuilder::from_env();
        match &self.options.credentials {
            _ if self.options.anonymous => builder = builder.with_skip_signature(true),
            // The environment may have keys of another kind, which would win.
            Some(Credentials::Google { service_account_key }) => {
                let base = builder.get_config_value(&GoogleConfigKey::BaseUrl);
                builder = GoogleCloudStorageBuilder::new().with_service_account_key(service_account_key);
                if let Some(base) = base {
                    builder = builder.with_base_url(&base);
                }
            }
            _ => credentials::google(self.url, environment, vendor().as_deref())?,
        }
        builder = builder.with_bucket_name(self.bucket);
        if let Some(endpoint) = &self.options.endpoint {
            self.checked(endpoint, None)?;
            builder = builder.with_base_url(endpoint.trim_end_matches('/'));
        }
        let given = builder.get_config_value(&GoogleConfigKey::BaseUrl);
        let base = given.unwrap_or_else(|| "https://storage.googleapis.com".to_owned());
        let base = format!("{}/{}", base.trim_end_matches('/'), self.bucket);
        let unsigned = self.options.anonymous;
        let built = builder.with_retry(no_retries()).with_http_connector(self.connector.clone()).build();
        let has_key = self.options.credentials.is_some() && !unsigned;
        let store = Arc::new(built.map_err(|error| match has_key {
            // The error of a key that is not JSON may show it.
            true => Error::new(
                ErrorKind::InvalidUrl,
                format!("{}: the key of the service account is not the text of a key file", self.url),
            ),
            false => self.refused(&error),
        })?);
        let signer = if unsigned { Signer::Nobody } else { Signer::Google(Arc::clone(store.credentials())) };
        Ok(self.cloud(Kind::Google, Arc::clone(&store) as _, store, base, signer))
    }

    fn azure(self, environment: Environment<'_>) -> Result<Cloud> {
        let mut builder = MicrosoftAzureBuilder::from_env();
        let (account, key, token) = match &self.options.credentials {
            Some(Credentials::Azure { account_name, account_key, sas_token }) => {
                (Some(account_name), account_key.as_deref(), sas_token.as_deref())
            }
            _ => (None, None, None),
        };
        let [key, token] = [key, token].map(|value| value.filter(|value| !value.is_empty()));
        let has_key = key.is_some() || token.is_some();
        if !self.options.anonymous && !has_key {
            credentials::azure(self.url, environment, vendor().as_deref())?;
        }
        // The environment's endpoint is of its own account.
        let own = builder.get_config_value(&AzureConfigKey::AccountName);
        let mut endpoint = builder
            .get_config_value(&AzureConfigKey::Endpoint)
            .filter(|_| account.is_none() || account == own.as_ref());
        if let Some(account) = account {
            if self.options.anonymous || has_key {
                // The environment may have keys of another kind, which would win.
                builder = MicrosoftAzureBuilder::new();
            }
            builder = builder.with_account(account);
        }
        builder = match (self.options.anonymous, key, token) {
            (true, ..) => builder.with_skip_signature(true),
            (_, Some(key), _) => builder.with_access_key(key.trim()),
            (_, None, Some(token)) => {
                builder.with_config(AzureConfigKey::SasKey, token.trim_start_matches('?'))
            }
            _ => builder,
        };
        builder = builder.with_container_name(self.bucket);
        if let Some(given) = &self.options.endpoint {
            self.checked(given, None)?;
            endpoint = Some(given.trim_end_matches('/').to_owned());
        }
        let account = builder.get_config_value(&AzureConfigKey::AccountName).unwrap_or_default();
        let base = endpoint.unwrap_or_else(|| format!("https://{account}.blob.core.windows.net"));
        // Also the default one: the library would use the environment's for any account.
        builder = builder.with_endpoint(base.clone());
        let base = format!("{}/{}", base.trim_end_matches('/'), self.bucket);
        let built = builder.with_retry(no_retries()).with_http_connector(self.connector.clone()).build();
        let store = Arc::new(built.map_err(|error| self.refused(&error))?);
        let signer = match self.options.anonymous {
            true => Signer::Nobody,
            false => Signer::Azure { credentials: Arc::clone(store.credentials()), account },
        };
        Ok(self.cloud(Kind::Azure, Arc::clone(&store) as _, store, base, signer))
    }

    fn cloud(
        &self,
        kind: Kind,
        store: Arc<dyn ObjectStore>,
        parts: Arc<dyn MultipartStore>,
        base: String,
        signer: Signer,
    ) -> Cloud {
        let Connector { place, client } = self.connector.clone();
        let wire = Wire {
            place,
            base,
            client,
            signer,
            always: Vec::new(),
            reading: Vec::new(),
            writing: Vec::new(),
        };
        let (bucket, verify) = (self.bucket.to_owned(), self.options.verify);
        let attributes = self.options.attributes && kind == Kind::Amazon;
        let parts = Parts { copied: Arc::clone(&parts), sent: parts };
        let (ahead, names, uploads) = (StatAhead::default(), NameCache::new(), Uploads::default());
        if kind == Kind::Azure {
            names.set_lists_whole();
        }
        let waiting = Waiting::default();
        Cloud { kind, bucket, store, parts, wire, verify, attributes, ahead, names, uploads, waiting }
    }

    /// The endpoint with its host as signatures have it: in lower case, and addresses in their
    /// usual form. Plain http sends data, and with some clouds keys, unencrypted: only if that is
    /// requested.
    fn checked(&self, endpoint: &str, allowed: Option<String>) -> Result<String> {
        let invalid = |why: String| Error::new(ErrorKind::InvalidUrl, format!("{}: {why}", self.url));
        if !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
            return Err(invalid(format!("the endpoint `{endpoint}` wants https:// or http:// before it")));
        }
        if endpoint.starts_with("https://")
            || self.options.allow_http
            || allowed.is_some_and(|value| truth(&value))
        {
            let url = Url::parse(endpoint).map_err(|e| invalid(format!("the endpoint `{endpoint}`: {e}")))?;
            return Ok(url.as_str().trim_end_matches('/').to_owned());
        }
        Err(invalid(format!(
            "the endpoint `{endpoint}` is plain http; allow it (--allow-http or AWS_ALLOW_HTTP=true) or use https"
        )))
    }

    fn refused(&self, error: &object_store::Error) -> Error {
        Error::new(ErrorKind::InvalidUrl, format!("{}: {}", self.url, chain(error)))
    }
}

/// Keys that never change.
fn fixed(mut keys: Credentials) -> Option<StaticCredentialProvider<AwsCredential>> {
    let Credentials::Amazon { access_key_id, secret_access_key, session_token } = &mut keys else {
        return None;
    };
    // Together: a session token left in the environment belongs to other keys.
    let (key_id, secret_key) = (take(access_key_id), take(secret_access_key));
    Some(StaticCredentialProvider::new(AwsCredential { key_id, secret_key, token: session_token.take() }))
}

/// The header that says that the requester pays, where the environment says so.
fn payer(environment: Environment<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let pays = environment("AWS_REQUEST_PAYER").is_some_and(|value| truth(&value));
    let header = (HeaderName::from_static("x-amz-request-payer"), HeaderValue::from_static("requester"));
    pays.then_some(header).into_iter().collect()
}

/// The headers that set the encryption of new objects, as the library builds them from the
/// environment.
fn encryption(builder: &AmazonS3Builder) -> Vec<(HeaderName, String)> {
    let setting = |name: &str| builder.get_config_value(&name.parse::<AmazonS3ConfigKey>().ok()?);
    let header = |name, value: Option<String>| Some((HeaderName::from_static(name), value?));
    let kind = setting("aws_server_side_encryption");
    let bucket_key = setting("aws_sse_bucket_key_enabled").filter(|value| truth(value));
    [
        // A customer's key is no algorithm, and uses other headers.
        header("x-amz-server-side-encryption", kind.filter(|kind| kind != "sse-c")),
        header("x-amz-server-side-encryption-aws-kms-key-id", setting("aws_sse_kms_key_id")),
        header("x-amz-server-side-encryption-bucket-key-enabled", bucket_key.map(|_| "true".to_owned())),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The headers for reads of objects that are encrypted with a customer's key from the environment.
fn customer_key(environment: Environment<'_>, url: &str) -> Result<Vec<(HeaderName, HeaderValue)>> {
    let Some(key) = environment("AWS_SSE_CUSTOMER_KEY_BASE64") else { return Ok(Vec::new()) };
    let invalid =
        || Error::new(ErrorKind::InvalidUrl, format!("{url}: AWS_SSE_CUSTOMER_KEY_BASE64 is no Base64"));
    let plain = BASE64_STANDARD.decode(key.trim()).map_err(|_| invalid())?;
    let sum = BASE64_STANDARD.encode(Md5::digest(&plain));
    let header = |name, value: &str| {
        let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        value.set_sensitive(true);
        Ok((HeaderName::from_static(name), value))
    };
    Ok(vec![
        header("x-amz-server-side-encryption-customer-algorithm", "AES256")?,
        header("x-amz-server-side-encryption-customer-key", key.trim())?,
        header("x-amz-server-side-encryption-customer-key-md5", &sum)?,
    ])
}

/// The caller retries, and counts.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn truth(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
}

/// Connections to an object store: at 90 MB/s each, they fill 5 GB/s.
const SLOTS: u32 = 64;
