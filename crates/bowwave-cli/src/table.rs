//! Tables of aligned text that fit a width: columns are left out and words wrapped if need be.

use std::fmt;

/// Columns of a line if standard output is no terminal.
pub(crate) const WIDTH: usize = 100;

/// Columns of words are wrapped to this width before another column is left out.
const WORDS: usize = 24;

/// Columns of words are never wrapped to less than this.
const WORDS_MIN: usize = 10;

/// Spaces between two columns, and before a cell below its row.
const GAP: usize = 2;

/// Rows under a head; numbers are aligned to the right, words to the left.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// The head of a column, and how the column gives way if the table is too wide.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    head: String,
    align: Align,
    keep: Keep,
}

/// To which side the cells of a column lean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words, which may be wrapped.
    Left,
    /// Numbers.
    Right,
}

/// What becomes of a column where a table does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It stays.
    Always,
    /// It is left out if all its cells are the same, `-` aside.
    Varying,
    /// It is left out, those with higher numbers first.
    Rank(u8),
    /// Its cells go below their rows.
    Below,
}

/// A table in the requested width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fitted {
    /// The lines.
    pub(crate) text: String,
    /// Heads of the columns that were left out; with their value, if it is the same in all rows.
    pub(crate) left_out: Vec<String>,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new(columns: impl IntoIterator<Item = impl Into<Column>>) -> Self {
        let columns: Vec<Column> = columns.into_iter().map(Into::into).collect();
        let head = columns.iter().map(|column| column.head.clone()).collect();
        Self { columns, rows: vec![head] }
    }

    /// Appends a row; cells past the last column are dropped, missing ones are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// The table in lines of at most `width` columns, unless the numbers that must stay are wider.
    pub(crate) fn fit(&self, width: usize) -> Fitted {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let mut left_out = Vec::new();
        let natural: Vec<usize> = shown.iter().map(|&column| self.natural(column)).collect();
        let line = |shown: &[usize], widths: &[usize]| {
            shown.iter().map(|&column| widths[column] + GAP).sum::<usize>().saturating_sub(GAP)
        };
        if line(&shown, &natural) > width {
            shown.retain(|&column| self.columns[column].keep != Keep::Below);
        }
        let least = |words: usize| -> Vec<usize> {
            let of = |column: &Column, natural: usize| match column.align {
                Align::Left => natural.min(words),
                Align::Right => natural,
            };
            self.columns.iter().zip(&natural).map(|(column, &natural)| of(column, natural)).collect()
        };
        let (wrapped, least) = (least(WORDS), least(WORDS_MIN));
        while line(&shown, &wrapped) > width
            && let Some(column) = self.dispensable(&shown)
        {
            shown.retain(|&other| other != column);
            left_out.push(column);
        }
        let mut widths = natural;
        // The widest column of words gives way, a column at a time.
        while line(&shown, &widths) > width
            && let Some(&column) = shown
                .iter()
                .filter(|&&column| widths[column] > least[column])
                .max_by_key(|&&column| widths[column])
        {
            widths[column] -= 1;
        }
        left_out.sort_unstable();
        let left_out = left_out.into_iter().map(|column| self.named(column)).collect();
        Fitted { text: self.lines(&shown, &widths, width), left_out }
    }

    /// The column to leave out next.
    fn dispensable(&self, shown: &[usize]) -> Option<usize> {
        let mut order = shown.iter().copied().filter_map(|column| match self.columns[column].keep {
            Keep::Varying if self.only_value(column).is_some() => Some((u16::MAX, column)),
            Keep::Rank(rank) => Some((rank.into(), column)),
            Keep::Always | Keep::Varying | Keep::Below => None,
        });
        let first = order.next()?;
        Some(order.fold(first, |most, next| if next.0 > most.0 { next } else { most }).1)
    }

    /// The value of all cells of a column of two rows or more, if it is the same.
    fn only_value(&self, column: usize) -> Option<&str> {
        let mut cells = self.rows[1..].iter().map(|row| row[column].as_str()).filter(|cell| *cell != "-");
        let first = cells.next()?;
        (self.rows.len() > 2 && cells.all(|cell| cell == first)).then_some(first)
    }

    fn named(&self, column: usize) -> String {
        let head = &self.rows[0][column];
        match (self.columns[column].keep, self.only_value(column)) {
            (Keep::Varying, Some(value)) => format!("{head} ({value} in every row)"),
            _ => head.clone(),
        }
    }

    fn natural(&self, column: usize) -> usize {
        self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    }

    fn lines(&self, shown: &[usize], widths: &[usize], width: usize) -> String {
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let cells: Vec<Vec<String>> =
                shown.iter().map(|&column| wrapped(&row[column], widths[column])).collect();
            for place in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
                let mut line = String::new();
                for (index, (&column, cell)) in shown.iter().zip(&cells).enumerate() {
                    let (cell, width) = (cell.get(place).map_or("", String::as_str), widths[column]);
                    if index > 0 {
                        line.push_str(&" ".repeat(GAP));
                    }
                    match self.columns[column].align {
                        Align::Left => line.push_str(&format!("{cell:<width$}")),
                        Align::Right => line.push_str(&format!("{cell:>width$}")),
                    }
                }
                text.push_str(line.trim_end());
                text.push('\n');
            }
            let below = (0..self.columns.len()).filter(|column| !shown.contains(column));
            for column in below.filter(|&column| number > 0 && self.columns[column].keep == Keep::Below) {
                for line in
                    wrapped(&row[column], width.saturating_sub(GAP)).iter().filter(|line| !line.is_empty())
                {
                    text.push_str(&format!("{}{line}\n", " ".repeat(GAP)));
                }
            }
        }
        text
    }
}

/// `text` in lines of at most `width` letters, broken between words, or anywhere in a longer word.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_inclusive([' ', ',', '/', ':', '-', '=']) {
        let last = lines.last_mut().expect("there is a line");
        if last.chars().count() + word.trim_end().chars().count() <= width {
            last.push_str(word);
            continue;
        }
        let letters: Vec<char> = word.chars().collect();
        lines.extend(letters.chunks(width.max(1)).map(|part| part.iter().collect::<String>()));
    }
    lines.retain(|line| !line.trim().is_empty());
    if lines.is_empty() {
        vec![String::new()]
    } else {
        lines.iter().map(|line| line.trim_end().to_owned()).collect()
    }
}

impl From<(&str, Align)> for Column {
    fn from((head, align): (&str, Align)) -> Self {
        (head, align, Keep::Always).into()
    }
}

impl From<(&str, Align, Keep)> for Column {
    fn from((head, align, keep): (&str, Align, Keep)) -> Self {
        Self { head: head.to_owned(), align, keep }
    }
}

impl fmt::Display for Table {
    /// All columns, as wide as they are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fit(usize::MAX).text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_low_rank_are_left_out_where_a_table_does_not_fit() {
        let mut table = Table::new([
            ("policy", Align::Left, Keep::Always),
            ("seconds", Align::Right, Keep::Always),
            ("p99", Align::Right, Keep::Rank(1)),
        ]);
        table.row(["none", "12.10", "8 ms"]);
        table.row(["ondemand", "1.75", "1 ms"]);
        assert_eq!(
            table.to_string(),
            "policy    seconds   p99\nnone        12.10  8 ms\nondemand     1.75  1 ms\n"
        );
        assert_eq!(table.fit(20).text, "policy    seconds\nnone        12.10\nondemand     1.75\n");
        assert_eq!(table.fit(20).left_out, ["p99"]);
    }

    #[test]
    fn rows_have_the_columns_of_the_head() {
        let mut table = Table::new([("a", Align::Left, Keep::Always), ("b", Align::Right, Keep::Always)]);
        table.row(["1"]);
        table.row(["long", "22", "dropped"]);
        assert_eq!(table.to_string(), "a      b\n1\nlong  22\n");
    }

    #[test]
    fn a_column_that_says_nothing_is_left_out_before_one_of_low_rank() {
        let mut table = Table::new([
            ("device", Align::Left, Keep::Always),
            ("cache", Align::Right, Keep::Varying),
            ("pages", Align::Right, Keep::Varying),
            ("p50", Align::Right, Keep::Rank(9)),
            ("p99", Align::Right, Keep::Rank(1)),
        ]);
        table.row(["hdd", "1 GiB", "32", "1 ms", "2 ms"]);
        table.row(["hdd", "1 GiB", "256", "1 ms", "2 ms"]);
        table.row(["hdd", "1 GiB", "-", "-", "-"]);
        let left_out = |width| table.fit(width).left_out;
        assert_eq!(left_out(100), [""; 0]);
        assert_eq!(left_out(27), ["cache (1 GiB in every row)"]);
        assert_eq!(left_out(20), ["cache (1 GiB in every row)", "p50"]);
        assert_eq!(left_out(13), ["cache (1 GiB in every row)", "p50", "p99"]);
        // What must stay stays.
        assert_eq!(table.fit(1).text, "device  pages\nhdd        32\nhdd       256\nhdd         -\n");
    }

    #[test]
    fn words_are_wrapped_and_remarks_go_below_their_rows() {
        let mut table = Table::new([
            ("device", Align::Left, Keep::Always),
            ("seconds", Align::Right, Keep::Always),
            ("note", Align::Left, Keep::Below),
        ]);
        table.row([
            "/srv/devices/an-array.toml:rpm=5400, deadline:starved=4",
            "1.5",
            "not as it was published",
        ]);
        table.row(["hdd", "22.0", ""]);
        let fitted = table.fit(32).text;
        assert_eq!(
            fitted,
            "device                   seconds\n/srv/devices/an-             1.5\narray.toml:rpm=5400,\n\
             deadline:starved=4\n  not as it was published\nhdd                         22.0\n"
        );
        assert!(fitted.lines().all(|line| line.chars().count() <= 32));
    }

    #[test]
    fn a_word_longer_than_its_column_is_broken_anywhere() {
        assert_eq!(wrapped("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrapped("", 3), [""]);
    }
}
