//! `bowwave reproduce`: its rows, the same to the byte each time.

use crate::common::{bowwave, failure, run};
use serde_json::Value;

#[test]
fn thrashing_gives_the_rows_of_the_contract_and_the_same_bytes_twice() {
    let text = run(bowwave().args(["reproduce", "thrashing", "--json"]));
    let rows: Vec<Value> = serde_json::from_str(&text).expect("an array");
    assert!(!rows.is_empty());
    for row in &rows {
        for key in ["document", "table", "row", "unit", "bar", "note"] {
            assert!(row[key].is_string(), "{key}: {row}");
        }
        for key in ["published", "ours"] {
            let pair = &row[key];
            assert!(pair.get("baseline").is_some() && pair.get("improved").is_some(), "{key}: {row}");
        }
        assert!(
            row["holds"].is_boolean()
                && row.get("gain_published").is_some()
                && row.get("gain_ours").is_some()
        );
        assert!(row["holds"] == true || row["note"].as_str().is_some_and(|note| !note.is_empty()), "{row}");
    }
    assert_eq!(text, run(bowwave().args(["reproduce", "thrashing", "--json"])));
}

#[test]
fn experiments_there_are_not_are_refused_with_those_there_are() {
    let (code, line) = failure(bowwave().args(["reproduce", "frob"]));
    assert!(
        code == 2
            && line.contains("there is no experiment 'frob'")
            && line.contains("thrashing")
            && line.contains("004"),
        "{line}"
    );
    assert!(run(bowwave().args(["reproduce", "--list"])).contains("thrashing"));
}
