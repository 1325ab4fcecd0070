"""Options of other file systems as settings of ours."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

#: Options of the usual file systems of a scheme with the meaning of a setting of ours.
SETTINGS = {
    "s3": {"anon": "anonymous", "endpoint_url": "endpoint", "region_name": "region", "key": "key", "username": "key",
           "aws_access_key_id": "key", "secret": "secret", "password": "secret", "aws_secret_access_key": "secret",
           "token": "token", "aws_session_token": "token"},
    "gs": {"anon": "anonymous", "endpoint_url": "endpoint", "service_account": "service_account"},
    "az": {"anon": "anonymous", "endpoint_url": "endpoint", "account_name": "account_name", "account_key": "account_key",
           "sas_token": "sas_token"},
}
#: What adlfs reads in the environment in place of options.
VARIABLES = {"account_name": "AZURE_STORAGE_ACCOUNT_NAME", "account_key": "AZURE_STORAGE_ACCOUNT_KEY",
             "sas_token": "AZURE_STORAGE_SAS_TOKEN"}
#: Parts of a connection string of Azure, and the options with their meaning.
CONNECTION = {"AccountName": "account_name", "AccountKey": "account_key", "SharedAccessSignature": "sas_token",
              "BlobEndpoint": "endpoint_url"}
#: Options for listings.
LISTINGS = frozenset({"use_listings_cache", "listings_expiry_time", "max_paths"})
#: Options that do not change what is read: those of listings, of writes and of the file system's own cache.
NEUTRAL = LISTINGS | {"asynchronous", "loop", "auto_mkdir", "skip_instance_cache", "default_cache_type",
                      "default_block_size", "default_fill_cache", "max_concurrency", "fixed_upload_size", "project", "default_location",
                      "cache_timeout", "blocksize", "block_size", "cache_type", "cache_options"}
#: Protocols of fsspec, and the scheme of ours.
SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az",
           "file": "file", "local": "file",
           "http": "http", "https": "https"}


def native(protocol: str, options: dict[str, Any], settings: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The scheme, if the engine can open the target with these options, and its settings; else those of the cache."""
    scheme = SCHEMES.get(protocol)
    known = SETTINGS.get(scheme or "", {})
    ours = dict(settings)
    given = {name: value for name, value in options.items() if value is not None and name not in NEUTRAL}
    if scheme == "s3":
        # As in s3fs, what it names itself comes first.
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
    """Options of gcsfs with its token as ours: `"anon"`, or the key of a service account as a file or a dictionary.
    `None` if gcsfs reads in a way of its own."""
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
    """Options of adlfs as ours; `None` if adlfs finds its credentials in a way of its own."""
    given = {name: value for name, value in _connected(given).items() if value != ""}
    if "account_host" in given:
        given["endpoint_url"] = f"https://{given.pop('account_host')}"
    usual = os.environ.get(VARIABLES["account_name"])
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
    """Options of adlfs with those that a connection string stands for in its place, if all its parts are known."""
    pairs = (part.partition("=") for part in str(given.get("connection_string", "")).split(";") if part)
    parts = {name: value for name, _, value in pairs}
    protocol, suffix = parts.pop("DefaultEndpointsProtocol", "https"), parts.pop("EndpointSuffix", None)
    if not parts or protocol != "https" or not parts.keys() <= CONNECTION.keys():
        return given
    if suffix is not None and "AccountName" in parts:
        parts.setdefault("BlobEndpoint", f"https://{parts['AccountName']}.blob.{suffix}")
    return ({name: value for name, value in given.items() if name != "connection_string"}
            | {CONNECTION[name]: value for name, value in parts.items()})
