//! `bowwave reproduce`: its rows, the same to the byte each time.

use crate::common::{bowwave, failure, run};
use serde_json::Value;

#[test]
fn thrashing_gives_the_rows_of_the_contract_and_the_same_bytes_twice() {
    let text = run(bowwave().args(["reproduce", "thrashing", "--json"]));
    let rows: Vec<Value> = serde_json::from_str(&text).expect("an array");
    assert!(!rows.is_empty());
    for row in &rows {
        for key in ["document", "table", "row", "unit", "kind", "bar", "note"] {
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
        let kind = row["kind"].as_str().expect("a kind");
        assert_eq!(row["holds"] == true, ["reproduced", "better"].contains(&kind), "{row}");
        assert!(row["holds"] == true || row["note"].as_str().is_some_and(|note| !note.is_empty()), "{row}");
    }
    assert_eq!(text, run(bowwave().args(["reproduce", "thrashing", "--json"])));
}

#[test]
fn the_summary_counts_each_kind_and_copies_of_a_run_once() {
    let text = run(bowwave().args(["reproduce", "thrashing", "overheads"]));
    let rows: Vec<Value> =
        serde_json::from_str(&run(bowwave().args(["reproduce", "thrashing", "overheads", "--json"])))
            .expect("an array");
    let copies = rows.iter().filter(|row| row["copy_of"].is_string()).count();
    let count = |kind| rows.iter().filter(|row| row["kind"] == kind && row["copy_of"].is_null()).count();
    let line = format!(
        "{} figures: {} reproduced, {} better, {} direction, {} differs, {} fitted, {} not modelled. {copies} more rows",
        rows.len() - copies,
        count("reproduced"),
        count("better"),
        count("direction"),
        count("differs"),
        count("fitted"),
        count("not-modelled"),
    );
    assert!(copies > 0 && text.contains(&line), "{line}: {text}");
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
