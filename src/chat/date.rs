//! Dates for templates that print today's: `strftime` over seconds since 1970.

use std::fmt::Write;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// The first day of 1970 was a Thursday.
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// A moment of the proleptic Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment {
    year: i64,
    /// 0 to 11.
    month: usize,
    /// 1 to 31.
    day: i64,
    /// 0 for Thursday.
    week_day: usize,
    /// 1 to 366.
    year_day: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

/// Formats `seconds` since 1970 as C's `strftime` in English. Specifiers it does not know stay as they are; `%-d` and
/// its like leave zeros out.
pub(super) fn strftime(seconds: i64, format: &str) -> String {
    let moment = Moment::new(seconds);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut specifier = chars.next();
        let bare = specifier == Some('-');
        if bare {
            specifier = chars.next();
        }
        match specifier.and_then(|s| moment.field(s)) {
            Some(Field::Text(text)) => out.push_str(text),
            // Writing to a string cannot fail.
            Some(Field::Number(value, width)) => {
                let width = if bare { 1 } else { width };
                let _ = write!(out, "{value:0width$}");
            }
            Some(Field::Composed(format)) => out.push_str(&strftime(seconds, format)),
            None => {
                out.push('%');
                out.extend(bare.then_some('-').into_iter().chain(specifier));
            }
        }
    }
    out
}

enum Field {
    Text(&'static str),
    /// A number and its least digits.
    Number(i64, usize),
    Composed(&'static str),
}

impl Moment {
    fn new(seconds: i64) -> Self {
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, year_day) = year_of(days);
        let mut month = 0;
        let mut day = year_day;
        while month < 11 && day >= days_of(year, month) {
            day -= days_of(year, month);
            month += 1;
        }
        Self {
            year,
            month,
            day: day + 1,
            week_day: days.rem_euclid(7) as usize,
            year_day: year_day + 1,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }

    fn field(&self, specifier: char) -> Option<Field> {
        Some(match specifier {
            'Y' => Field::Number(self.year, 1),
            'y' => Field::Number(self.year.rem_euclid(100), 2),
            'm' => Field::Number(self.month as i64 + 1, 2),
            'd' => Field::Number(self.day, 2),
            'j' => Field::Number(self.year_day, 3),
            'H' => Field::Number(self.hour, 2),
            'I' => Field::Number((self.hour + 11) % 12 + 1, 2),
            'M' => Field::Number(self.minute, 2),
            'S' => Field::Number(self.second, 2),
            'p' => Field::Text(if self.hour < 12 { "AM" } else { "PM" }),
            'B' => Field::Text(MONTHS[self.month]),
            'b' | 'h' => Field::Text(&MONTHS[self.month][..3]),
            'A' => Field::Text(DAYS[self.week_day]),
            'a' => Field::Text(&DAYS[self.week_day][..3]),
            'F' => Field::Composed("%Y-%m-%d"),
            'T' => Field::Composed("%H:%M:%S"),
            '%' => Field::Text("%"),
            _ => return None,
        })
    }
}

/// The year of a day since 1970 and the day within it, from 0.
fn year_of(days: i64) -> (i64, i64) {
    // 400 years have 146,097 days; the estimate is off by at most one year.
    let mut year = 1970 + days.div_euclid(146_097) * 400 + days.rem_euclid(146_097) * 400 / 146_097;
    while first_day(year) > days {
        year -= 1;
    }
    while first_day(year + 1) <= days {
        year += 1;
    }
    (year, days - first_day(year))
}

/// Days from 1970 to the first day of `year`.
fn first_day(year: i64) -> i64 {
    let leaps = |y: i64| y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400);
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
}

fn days_of(year: i64, month: usize) -> i64 {
    let leap = first_day(year + 1) - first_day(year) == 366;
    [31, 28 + i64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_by_format() {
        let cases = [
            (0, "%A, %B %d, %Y %H:%M:%S", "Thursday, January 01, 1970 00:00:00"),
            (951_782_400, "%F %a", "2000-02-29 Tue"),
            (951_868_799, "%T %j", "23:59:59 060"),
            (1_735_689_599, "%d %b %Y", "31 Dec 2024"),
            (1_735_689_600, "%-d/%-m/%y %I%p", "1/1/25 12AM"),
            (-1, "%Y-%m-%d", "1969-12-31"),
            (4_107_542_400, "%d %B %Y", "01 March 2100"),
            (0, "100%% %q %", "100% %q %"),
        ];
        for (seconds, format, expected) in cases {
            assert_eq!(strftime(seconds, format), expected, "{seconds} as {format:?}");
        }
    }

    #[test]
    fn far_moments_do_not_overflow() {
        for seconds in [i64::MIN, i64::MAX] {
            assert!(!strftime(seconds, "%F").is_empty());
        }
    }
}
