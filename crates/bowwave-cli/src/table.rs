//! Tables of text, aligned, for people.

use std::fmt;

/// Rows under a head; numbers to the right, words to the left.
///
/// ```
/// use bowwave_cli::table::{Align, Table};
///
/// let mut table = Table::new([("policy", Align::Left), ("seconds", Align::Right)]);
/// table.row(["none", "12.10"]);
/// table.row(["ondemand", "1.75"]);
/// assert_eq!(table.to_string(), "policy    seconds\nnone        12.10\nondemand     1.75\n");
/// ```
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

/// To which side the cells of a column lean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

impl Table {
    /// A table with these columns.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let (head, columns) = columns.into_iter().map(|(head, align)| (head.to_owned(), align)).unzip();
        Self { columns, rows: vec![head] }
    }

    /// Appends a row; cells past the last column are dropped, missing ones are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, align), &width) in row.iter().zip(&self.columns).zip(&widths) {
                if !line.is_empty() {
                    line.push_str("  ");
                }
                match align {
                    Align::Left => line.push_str(&format!("{cell:<width$}")),
                    Align::Right => line.push_str(&format!("{cell:>width$}")),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_take_the_shape_of_the_head() {
        let mut table = Table::new([("a", Align::Left), ("b", Align::Right)]);
        table.row(["1"]);
        table.row(["long", "22", "dropped"]);
        assert_eq!(table.to_string(), "a      b\n1\nlong  22\n");
    }
}
