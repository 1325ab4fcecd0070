"""Translates options of other fsspec file systems into bowwave's settings."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

#: By scheme: options of s3fs, gcsfs and adlfs, and bowwave's setting with the same meaning.
SETTINGS = {
    "s3": {"anon": "anonymous", "endpoint_url": "endpoint", "region_name": "region", "key": "key", "username": "key",
           "aws_access_key_id": "key", "secret": "secret", "password": "secret", "aws_secret_access_key": "secret",
           "token": "token", "aws_session_token": "token"},
    "gs": {"anon": "anonymous", "endpoint_url": "endpoint", "service_account": "service_account"},
    "az": {"anon": "anonymous", "endpoint_url": "endpoint", "account_name": "account_name", "account_key": "account_key",
           "sas_token": "sas_token"},
}
#: Environment variables that adlfs reads in place of options.
VARIABLES = {"account_name": "AZURE_STORAGE_ACCOUNT_NAME", "account_key": "AZURE_STORAGE_ACCOUNT_KEY",
             "sas_token": "AZURE_STORAGE_SAS_TOKEN"}
#: Parts of an Azure connection string, and adlfs's options with the same meaning.
CONNECTION = {"AccountName": "account_name", "AccountKey": "account_key", "SharedAccessSignature": "sas_token",
              "BlobEndpoint": "endpoint_url"}
#: Options for listings.
LISTINGS = frozenset({"use_listings_cache", "listings_expiry_time", "max_paths"})
#: Options that do not change which bytes are read: for listings, for writes and for the file
#: system's own cache.
NEUTRAL = LISTINGS | {"asynchronous", "loop", "auto_mkdir", "skip_instance_cache", "default_cache_type",
                      "default_block_size", "default_fill_cache", "max_concurrency", "fixed_upload_size", "project", "default_location",
                      "cache_timeout", "blocksize", "block_size", "cache_type", "cache_options"}
#: Protocols of fsspec, and bowwave's scheme for each.
SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az",
           "file": "file", "local": "file",
           "http": "http", "https": "https"}


def native(protocol: str, options: dict[str, Any], settings: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The scheme and the engine's settings, if the engine can open the target with these options.

    Otherwise `None` and `settings`."""
    scheme = SCHEMES.get(protocol)
    known = SETTINGS.get(scheme or "", {})
    ours = dict(settings)
    given = {name: value for name, value in options.items() if value is not None and name not in NEUTRAL}
    if scheme == "s3":
        # As in s3fs, its own options take priority over `client_kwargs`.
        given = dict(given.pop("client_kwargs", {})) | given
    if scheme in ("gs", "az"):
        of_cloud = _of_google(given) if scheme == "gs" else _of_azure(given)
        if of_cloud is None:
            return None, settings
        given = of_cloud
    for name, value in given.items():
        if name in known:
            ours[known[name]] = value
        elif name in known.values():
            ours[name] = value
        else:
            return None, settings
    if scheme is None or ("token" in ours and "key" not in ours):
        return None, settings
    if str(ours.get("endpoint", "")).startswith("http:"):
        ours["allow_http"] = True
    return scheme, ours


def _of_google(given: dict[str, Any]) -> dict[str, Any] | None:
    """Options of gcsfs with its `token` translated, if that is `"anon"` or a service account's key.

    The key is a file or a dictionary. `None` if gcsfs reads from an emulator that the environment
    names."""
    if os.environ.get("STORAGE_EMULATOR_HOST") and "endpoint_url" not in given:
        return None
    token, others = given.get("token"), {name: value for name, value in given.items() if name != "token"}
    if token == "anon":
        return others | {"anon": True}
    try:
        key = json.loads(Path(token).read_text()) if isinstance(token, str) else token
    except (OSError, ValueError):
        return given
    known = (isinstance(key, dict) and key.get("type") == "service_account"
             and all(isinstance(key.get(name), str) for name in ("private_key", "private_key_id", "client_email"))
             and key.get("universe_domain") in (None, "googleapis.com")
             and key.get("token_uri") in (None, "https://oauth2.googleapis.com/token"))
    return others | {"service_account": json.dumps(key)} if known else given


def _of_azure(given: dict[str, Any]) -> dict[str, Any] | None:
    """Options of adlfs, with its defaults applied, in the names of `SETTINGS`.

    `None` if the engine cannot find the credentials that adlfs would use."""
    given = {name: value for name, value in _connected(given).items() if value != ""}
    if "account_host" in given:
        given["endpoint_url"] = f"https://{given.pop('account_host')}"
    usual = os.environ.get(VARIABLES["account_name"])
    if usual is None and "account_name" in given and not os.environ.get("AZURE_STORAGE_CONNECTION_STRING"):
        # The URL names the account, and the environment has the rest.
        found = {name: os.environ.get(VARIABLES[name]) for name in ("account_key", "sas_token")}
        given = {name: value for name, value in found.items() if value} | given
    if "account_key" in given or "sas_token" in given:
        host = str(given.get("endpoint_url", "")).removeprefix("https://").split("/")[0]
        account = given.get("account_name") or (host.split(".")[0] if ".blob." in host else usual)
        # As in adlfs, which is anonymous only without a key.
        given.pop("anon", None)
        return given | {"account_name": account} if account else None
    anon = given.get("anon", os.environ.get("AZURE_STORAGE_ANON", "").lower() not in ("", "false", "0", "f"))
    if given.get("account_name") not in (None, usual):
        return given | {"anon": True} if anon else None
    if os.environ.get("AZURE_STORAGE_CONNECTION_STRING"):
        return None
    given.pop("account_name", None)
    if any(os.environ.get(VARIABLES[name]) for name in ("account_key", "sas_token")):
        given.pop("anon", None)
    elif anon:
        given["anon"] = True
    return given


def _connected(given: dict[str, Any]) -> dict[str, Any]:
    """Options of adlfs, with a connection string replaced by the options that it contains.

    Unchanged if the string has unknown parts."""
    pairs = (part.partition("=") for part in str(given.get("connection_string", "")).split(";") if part)
    parts = {name: value for name, _, value in pairs}
    protocol, suffix = parts.pop("DefaultEndpointsProtocol", "https"), parts.pop("EndpointSuffix", None)
    if not parts or protocol != "https" or not parts.keys() <= CONNECTION.keys():
        return given
    if suffix is not None and "AccountName" in parts:
        parts.setdefault("BlobEndpoint", f"https://{parts['AccountName']}.blob.{suffix}")
    return ({name: value for name, value in given.items() if name != "connection_string"}
            | {CONNECTION[name]: value for name, value in parts.items()})
