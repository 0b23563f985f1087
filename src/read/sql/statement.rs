//! The text of a query → a checked statement of which the planner drops nothing.
//!
//! The engine's planner reads only some fields of the parser's syntax tree and ignores the others
//! without an error: `TABLESAMPLE` returns all rows. So gyre walks the tree first. It destructures
//! every struct whose fields the planner drops without `..`, so that a field added by a later
//! parser version is a compile error in this file.

use crate::read::sql::messages::OF_LISTS;
use datafusion::common::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::AggregateUDF;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Cte, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgumentClause,
    FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator, LimitClause,
    NamedWindowDefinition, NamedWindowExpr, NullTreatment, ObjectName, OrderBy, OrderByExpr,
    OrderByKind, PipeOperator, Query, Select, SelectFlavor, SelectItem, SetExpr, TableAlias,
    TableFactor, TableFunctionArgs, TableSampleKind, TableWithJoins, Visit, VisitMut, Visitor,
    VisitorMut, WildcardAdditionalOptions, WindowFrameBound, WindowSpec, WindowType, With,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use std::fmt::Display;
use std::ops::ControlFlow;
use std::ops::ControlFlow::{Break, Continue};

/// Longest expression or clause, in tokens without a comma or bracket between them. Each token may
/// be one level of the tree, and the stack must hold all levels in every stage from the parser to
/// the end of planning.
const MAX_TOKENS: usize = 4_000;

/// Most tables and subqueries per statement. Each is at least one level of the plan.
const MAX_TABLES: usize = 500;

/// Deepest nesting of brackets.
const MAX_NESTING: usize = 50;

/// What is wrong with a text. The caller prepends "the SQL of … cannot be planned: ".
type Refused = Box<String>;

/// Parses and checks a text that must hold exactly one query.
///
/// # Errors
/// A sentence that says what is wrong with the text.
pub(crate) fn parse(text: &str, state: &SessionState) -> Result<Statement, String> {
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, text)
        .tokenize_with_location()
        .map_err(|e| e.to_string())?;
    if longest(&tokens) > MAX_TOKENS {
        return Err(format!(
            "an expression has more than {MAX_TOKENS} words and operators without a comma or bracket between them; write a list of \
             alternatives as `x IN (…)`, join a table in place of a long CASE, or split the expression with brackets and subqueries"
        ));
    }
    let read = |tokens: Vec<TokenWithSpan>| {
        DFParserBuilder::new(tokens)
            .with_dialect(&dialect)
            .with_recursion_limit(MAX_NESTING)
            .build()
            .and_then(|mut parser| parser.parse_statements())
            .map_err(|e| wrong_syntax(&e))
    };
    let is_from = |token: &&TokenWithSpan| matches!(&token.token, Token::Word(word) if word.keyword == Keyword::FROM);
    let mut words = tokens
        .iter()
        .filter(|t| !matches!(t.token, Token::Whitespace(_)));
    let statements = match words.next().filter(is_from) {
        // The parser reads `FROM x` alone, but nothing after it.
        Some(_) => read(tokens.clone()).or_else(|wrong| {
            let all = [Token::make_keyword("SELECT"), Token::Mul];
            let whole = all.map(TokenWithSpan::wrap).into_iter().chain(tokens);
            read(whole.collect()).map_err(|_| wrong)
        }),
        None => read(tokens),
    };
    let mut statements = statements?.into_iter();
    let statement = match (statements.next(), statements.next()) {
        (Some(one), None) => one,
        (None, _) => return Err("there is no SQL; write a query, such as SELECT … FROM …".into()),
        (Some(_), Some(_)) => return Err("there is more than one statement; write one".into()),
    };
    let Statement::Statement(mut parsed) = statement else {
        return Err(not_a_query(&statement));
    };
    let ast::Statement::Query(query) = parsed.as_mut() else {
        return Err(not_a_query(&parsed));
    };
    // `Desugar` never breaks.
    let _: ControlFlow<()> = VisitMut::visit(query.as_mut(), &mut Desugar::default());
    let mut checker = Checker { state, tables: 0 };
    if let Break(refused) = Visit::visit(query.as_ref(), &mut checker) {
        return Err(*refused);
    }
    Ok(Statement::Statement(parsed))
}

fn not_a_query(statement: &dyn Display) -> String {
    let text = statement.to_string();
    let first = text.split_whitespace().next().unwrap_or_default();
    format!("`{first}` is not a query; write one that only reads, such as SELECT … FROM …")
}

fn wrong_syntax(e: &DataFusionError) -> String {
    let text = e.find_root().strip_backtrace();
    if text.contains("RecursionLimitExceeded") || text.contains("recursion limit") {
        return format!("expressions and subqueries are nested more than {MAX_NESTING} deep");
    }
    let text = text
        .trim_start_matches("SQL error: ")
        .trim_start_matches("ParserError(\"")
        .trim_end_matches("\")")
        .trim_start_matches("sql parser error: ")
        .replace("\\\"", "\"");
    // `x IN $list`.
    if text.starts_with("Expected: (, found: $") {
        text + OF_LISTS
    } else {
        text
    }
}

/// The most tokens in a row that no comma, bracket or branch of a CASE separates, including the
/// longest run inside their brackets.
fn longest(tokens: &[TokenWithSpan]) -> usize {
    /// An open bracket or CASE: tokens since the last comma, the longest run nested in them, and
    /// the longest run so far.
    #[derive(Default)]
    struct Open {
        is_case: bool,
        words: usize,
        within: usize,
        longest: usize,
    }
    impl Open {
        fn part(&mut self) {
            self.longest = self.longest.max(self.words + self.within);
            (self.words, self.within) = (0, 0);
        }
    }
    fn close(open: &mut Vec<Open>) {
        if let Some(mut closed) = open.pop() {
            closed.part();
            if let Some(above) = open.last_mut() {
                above.within = above.within.max(closed.longest);
            } else {
                open.push(closed);
            }
        }
    }
    let mut open = vec![Open::default()];
    for token in tokens {
        if let Some(now) = open.last_mut() {
            now.words += usize::from(!matches!(token.token, Token::Whitespace(_)));
        }
        let in_case = open.last().is_some_and(|now| now.is_case);
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => open.push(Open::default()),
            Token::RParen | Token::RBracket | Token::RBrace => close(&mut open),
            Token::Comma | Token::SemiColon => {
                if let Some(now) = open.last_mut() {
                    now.part();
                }
            }
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::CASE => open.push(Open {
                    is_case: true,
                    ..Open::default()
                }),
                Keyword::WHEN | Keyword::THEN | Keyword::ELSE if in_case => {
                    if let Some(now) = open.last_mut() {
                        now.part();
                    }
                }
                Keyword::END if in_case => close(&mut open),
                _ => {}
            },
            _ => {}
        }
    }
    while open.len() > 1 {
        close(&mut open);
    }
    open.first_mut().map_or(0, |all| {
        all.part();
        all.longest
    })
}

/// Rewrites what the planner does not know: `FROM x` without SELECT, and references to named
/// windows, which become the definition of the window.
///
/// It is the only visitor that changes a statement: each one is compiled for every type of the
/// parser.
#[derive(Default)]
struct Desugar {
    /// The named windows of the query and of the selects around a place, the innermost last.
    windows: Vec<Vec<NamedWindowDefinition>>,
}

impl Desugar {
    /// The definition of a window.
    fn window(&self, name: &Ident) -> Option<WindowSpec> {
        let mut all = self.windows.iter().rev().flatten();
        all.find_map(|NamedWindowDefinition(other, window)| match window {
            NamedWindowExpr::WindowSpec(spec) if lower(other) == lower(name) => Some(spec.clone()),
            _ => None,
        })
    }
}

impl VisitorMut for Desugar {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        // ORDER BY belongs to the query and may name the windows of its SELECT.
        self.windows.push(match query.body.as_ref() {
            SetExpr::Select(select) => select.named_window.clone(),
            _ => Vec::new(),
        });
        Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.windows.pop();
        Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if select.flavor == SelectFlavor::FromFirstNoSelect && select.projection.is_empty() {
            let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
            select.projection.push(all);
        }
        self.windows.push(select.named_window.clone());
        Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<()> {
        self.windows.pop();
        Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr
            && let Some(WindowType::NamedWindow(name)) = &function.over
            && let Some(spec) = self.window(name)
        {
            function.over = Some(WindowType::WindowSpec(spec));
        }
        Continue(())
    }
}

/// A name as the planner reads it: in lower case unless it is quoted.
fn lower(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

/// Refuses what the planner would drop, and counts tables.
struct Checker<'a> {
    state: &'a SessionState,
    tables: usize,
}

fn refuse<T>(clause: impl Display, instead: &str) -> ControlFlow<Refused, T> {
    let semicolon = if instead.is_empty() { "" } else { "; " };
    Break(Box::new(format!(
        "`{clause}` is not supported{semicolon}{instead}"
    )))
}

/// Refuses a clause if it is present.
fn refuse_some<T>(
    clause: &Option<T>,
    shown: impl Fn(&T) -> String,
    instead: &str,
) -> ControlFlow<Refused> {
    match clause {
        Some(clause) => refuse(shown(clause), instead),
        None => Continue(()),
    }
}

/// Refuses a clause if its flag is set.
fn refuse_if(is_set: bool, clause: impl Display, instead: &str) -> ControlFlow<Refused> {
    if is_set {
        return refuse(clause, instead);
    }
    Continue(())
}

impl Visitor for Checker<'_> {
    type Break = Refused;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Refused> {
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            // The planner refuses it.
            fetch: _,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        if let Some(with) = with {
            ctes(with)?;
        }
        if let Some(OrderBy { kind, .. }) = order_by {
            let is_select = matches!(body.as_ref(), SetExpr::Select(_));
            let is_all = matches!(kind, OrderByKind::All(_));
            let instead = "name the columns";
            refuse_if(
                is_all && !is_select,
                "ORDER BY ALL after UNION, EXCEPT, INTERSECT or VALUES",
                instead,
            )?;
        }
        match limit_clause {
            // The planner plans both in full, or refuses them.
            None
            | Some(
                LimitClause::LimitOffset {
                    limit: _,
                    offset: _,
                    limit_by: _,
                }
                | LimitClause::OffsetCommaLimit {
                    offset: _,
                    limit: _,
                },
            ) => {}
        }
        if let Some(lock) = locks.first() {
            refuse(lock, "")?;
        }
        refuse_some(for_clause, ToString::to_string, "")?;
        if let Some(settings) = settings {
            let first = settings.first().map_or(String::new(), ToString::to_string);
            refuse(format!("SETTINGS {first}"), "")?;
        }
        refuse_some(format_clause, |f| format!("FORMAT {f}"), "")?;
        for operator in pipe_operators {
            self.count(1)?;
            pipe(operator)?;
        }
        Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Refused> {
        let Select {
            select_token: _,
            // Hints are comments and have no effect.
            optimizer_hints: _,
            distinct: _,
            select_modifiers,
            // The planner refuses it.
            top: _,
            top_before_distinct: _,
            projection,
            exclude,
            into,
            from,
            // The planner refuses them.
            lateral_views: _,
            prewhere,
            selection: _,
            connect_by,
            group_by,
            // The planner refuses it.
            cluster_by: _,
            distribute_by: _,
            // The planner refuses it.
            sort_by: _,
            having: _,
            named_window,
            qualify: _,
            window_before_qualify: _,
            value_table_mode,
            flavor: _,
        } = select;
        self.count(1)?;
        refuse_some(select_modifiers, |m| m.to_string().trim().to_string(), "")?;
        refuse_some(
            exclude,
            ToString::to_string,
            "write it directly after its `*`",
        )?;
        refuse_some(into, ToString::to_string, "")?;
        refuse_some(
            prewhere,
            |e| format!("PREWHERE {e}"),
            "write the condition after WHERE",
        )?;
        if let Some(clause) = connect_by.first() {
            refuse(clause, "write WITH RECURSIVE")?;
        }
        let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = group_by;
        if let Some(modifier) = modifiers.first() {
            refuse(
                format!("GROUP BY … {modifier}"),
                "write ROLLUP (…), CUBE (…) or GROUPING SETS (…) after GROUP BY",
            )?;
        }
        for NamedWindowDefinition(_, window) in named_window {
            if let NamedWindowExpr::WindowSpec(spec) = window {
                window_spec(spec)?;
            }
        }
        refuse_some(value_table_mode, |mode| format!("SELECT {mode}"), "")?;
        projection.iter().try_for_each(select_item)?;
        from.iter().try_for_each(table_with_joins)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Refused> {
        self.count(1)?;
        let alias = match factor {
            TableFactor::Table {
                name,
                alias,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
            } => {
                if let Some(TableFunctionArgs { args: _, settings }) = args {
                    refuse_if(settings.is_some(), format!("{name}(… SETTINGS …)"), "")?;
                    function_name(name)?;
                }
                refuse_some(&with_hints.first(), |hint| format!("WITH ({hint})"), "")?;
                refuse_some(
                    version,
                    ToString::to_string,
                    "name the files of that version as the path",
                )?;
                ordinality(*with_ordinality)?;
                refuse_some(
                    &partitions.first(),
                    |partition| format!("PARTITION ({partition})"),
                    "write a condition on the partition's column after WHERE",
                )?;
                refuse_some(json_path, |path| format!("{name}{path}"), "")?;
                refuse_some(sample, shown, SAMPLED)?;
                refuse_some(&index_hints.first(), ToString::to_string, "")?;
                alias
            }
            TableFactor::Derived {
                lateral: _,
                subquery: _,
                alias,
                sample,
            } => {
                refuse_some(sample, shown, SAMPLED)?;
                alias
            }
            TableFactor::Function {
                lateral: _,
                name,
                args,
                with_ordinality,
                alias,
            } => {
                function_name(name)?;
                args.iter().try_for_each(unnamed)?;
                ordinality(*with_ordinality)?;
                alias
            }
            TableFactor::UNNEST {
                alias,
                array_exprs: _,
                // The planner refuses these.
                with_offset: _,
                with_offset_alias: _,
                with_ordinality: _,
            } => alias,
            TableFactor::NestedJoin {
                table_with_joins: nested,
                alias,
            } => {
                table_with_joins(nested)?;
                alias
            }
            // The planner refuses other kinds of tables.
            _ => return Continue(()),
        };
        table_alias(alias)
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Refused> {
        match expr {
            Expr::Function(function) => self.function(function),
            Expr::Cast { data_type, .. } => sql_type(data_type),
            Expr::TypedString(typed) => sql_type(&typed.data_type),
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                distinct(left, right)
            }
            Expr::BinaryOp {
                op: BinaryOperator::Xor | BinaryOperator::BitwiseXor | BinaryOperator::PGBitwiseXor,
                ..
            } => xor(expr),
            Expr::Trim {
                trim_where: _,
                trim_what: _,
                expr: _,
                trim_characters: Some(characters),
            } if characters.len() > 1 => {
                refuse(expr, "write all characters to be trimmed in one text")
            }
            // The planner reads every field of the other expressions that it knows, and refuses the
            // rest.
            _ => Continue(()),
        }
    }
}

/// Refuses `a IS DISTINCT FROM b AND c`: the parser reads `a IS DISTINCT FROM (b AND c)`.
fn distinct(left: &Expr, right: &Expr) -> ControlFlow<Refused> {
    use BinaryOperator::{And, Or, Xor};
    let Expr::BinaryOp { op, .. } = right else {
        return Continue(());
    };
    refuse_if(
        matches!(op, And | Or | Xor),
        format!("{left} IS [NOT] DISTINCT FROM {right}"),
        "the parser would take the whole rest for the right side: write brackets around the comparison",
    )
}

/// Refuses the exclusive or of an expression and itself: the engine's result is 0 for null.
fn xor(chain: &Expr) -> ControlFlow<Refused> {
    use BinaryOperator::{BitwiseXor, PGBitwiseXor, Xor};
    let (mut rest, mut operands) = (vec![chain], Vec::new());
    while let Some(next) = rest.pop() {
        match next {
            Expr::Nested(inner) => rest.push(inner),
            Expr::BinaryOp {
                left,
                op: Xor | BitwiseXor | PGBitwiseXor,
                right,
            } => rest.extend([&**right, &**left]),
            operand if operands.contains(&operand) => {
                let instead =
                    "the engine's result is wrong where the value is null: leave both out";
                return refuse(chain, instead);
            }
            operand => operands.push(operand),
        }
    }
    Continue(())
}

/// Whether an aggregate over a frame whose first row moves subtracts the rows that leave it, and so
/// loses digits, or the null of a frame without values.
fn subtracts(aggregate: &str) -> bool {
    let begins = ["var", "stddev", "covar", "regr_"];
    begins.iter().any(|begin| aggregate.starts_with(begin))
        || ["corr", "bit_xor"].contains(&aggregate)
}

/// The frame of a window if its first row moves.
fn moving(spec: &WindowSpec) -> Option<String> {
    let frame = spec.window_frame.as_ref()?;
    match &frame.start_bound {
        WindowFrameBound::Preceding(None) => None,
        start => Some(format!("{} {start}", frame.units)),
    }
}

fn shown(sample: &TableSampleKind) -> String {
    let (TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample)) =
        sample;
    sample.to_string()
}

/// Refusal of a sample of rows.
const SAMPLED: &str = "a sample of rows would break trajectories into pieces. Keep whole trajectories: `WHERE id % 10 = 0` takes one in ten where \
    ids are numbers, `WHERE ascii(right(id, 1)) % 10 = 0` about as many where they are texts";

fn ctes(with: &With) -> ControlFlow<Refused> {
    let With {
        with_token: _,
        recursive,
        cte_tables,
    } = with;
    for cte in cte_tables {
        let Cte {
            alias,
            query,
            from,
            materialized,
            closing_paren_token: _,
        } = cte;
        refuse_some(from, |from| format!("WITH … FROM {from}"), "")?;
        refuse_some(materialized, |m| format!("AS {m}"), "write AS alone")?;
        typed_columns(alias)?;
        // Of a union in WITH RECURSIVE the planner reads the two sides and ignores the clauses
        // around them.
        if *recursive && matches!(query.body.as_ref(), SetExpr::SetOperation { .. }) {
            let Query {
                with,
                body: _,
                order_by,
                limit_clause,
                fetch,
                locks: _,
                for_clause: _,
                settings: _,
                format_clause: _,
                pipe_operators,
            } = query.as_ref();
            let clause = [
                (with.is_some(), "WITH"),
                (order_by.is_some(), "ORDER BY"),
                (limit_clause.is_some(), "LIMIT"),
                (fetch.is_some(), "FETCH"),
                (!pipe_operators.is_empty(), "|>"),
            ];
            if let Some((_, clause)) = clause.into_iter().find(|(is_there, _)| *is_there) {
                let name = &alias.name;
                refuse(
                    format!("{clause} of a union in WITH RECURSIVE {name}"),
                    "write it where the result is read",
                )?;
            }
        }
    }
    Continue(())
}

fn typed_columns(alias: &TableAlias) -> ControlFlow<Refused> {
    let TableAlias {
        explicit: _,
        name,
        columns,
        at,
    } = alias;
    let typed = columns.iter().find(|column| column.data_type.is_some());
    refuse_some(
        &typed.map(|column| format!("{name}({column})")),
        ToString::to_string,
        "give names without types here, and CAST in the query",
    )?;
    refuse_some(at, |at| format!("AT {at}"), "")
}

/// Clauses of other engines that the parser takes for an alias of the table before them.
const CLAUSES: [&str; 9] = [
    "final",
    "sample",
    "nolock",
    "prewhere",
    "positional",
    "paste",
    "any",
    "asof",
    "global",
];

fn table_alias(alias: &Option<TableAlias>) -> ControlFlow<Refused> {
    let Some(alias) = alias else {
        return Continue(());
    };
    let name = &alias.name;
    if !alias.explicit && name.quote_style.is_none() && CLAUSES.contains(&lower(name).as_str()) {
        refuse(
            name.value.to_uppercase(),
            &format!("to use it as an alias of the table, write AS {name}"),
        )?;
    }
    typed_columns(alias)
}

fn table_with_joins(table: &TableWithJoins) -> ControlFlow<Refused> {
    let TableWithJoins { relation: _, joins } = table;
    joins.iter().try_for_each(join)
}

fn join(join: &Join) -> ControlFlow<Refused> {
    let Join {
        relation: _,
        global,
        join_operator,
    } = join;
    refuse_if(*global, "GLOBAL JOIN", "write JOIN")?;
    match join_operator {
        JoinOperator::Join(JoinConstraint::None)
        | JoinOperator::Inner(JoinConstraint::None)
        | JoinOperator::Left(JoinConstraint::None)
        | JoinOperator::LeftOuter(JoinConstraint::None)
        | JoinOperator::Right(JoinConstraint::None)
        | JoinOperator::RightOuter(JoinConstraint::None)
        | JoinOperator::FullOuter(JoinConstraint::None) => refuse(
            "JOIN without ON or USING",
            "write CROSS JOIN to pair every row with every other",
        ),
        _ => Continue(()),
    }
}

fn select_item(item: &SelectItem) -> ControlFlow<Refused> {
    let (SelectItem::QualifiedWildcard(_, options) | SelectItem::Wildcard(options)) = item else {
        return Continue(());
    };
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        // The planner reads these, and checks that their columns exist.
        opt_exclude: _,
        opt_except: _,
        opt_replace,
        // The planner refuses these.
        opt_rename: _,
        opt_alias: _,
    } = options;
    refuse_some(opt_ilike, |ilike| format!("* {ilike}"), "name the columns")?;
    // The planner reads it, but ignores a name that is not a column.
    refuse_some(
        opt_replace,
        |replace| format!("* {replace}"),
        "write `* EXCLUDE (x), … AS x`",
    )
}

fn pipe(operator: &PipeOperator) -> ControlFlow<Refused> {
    match operator {
        PipeOperator::Aggregate {
            full_table_exprs,
            group_by_expr,
        } => {
            let mut all = full_table_exprs.iter().chain(group_by_expr);
            let sorted = all.find(|e| e.order_by.asc.is_some() || e.order_by.nulls_first.is_some());
            refuse_some(
                &sorted,
                |e| format!("|> AGGREGATE … {e}"),
                "write `|> ORDER BY` after it",
            )
        }
        PipeOperator::Select { exprs } | PipeOperator::Extend { exprs } => {
            exprs.iter().try_for_each(select_item)
        }
        PipeOperator::Join(one) => join(one),
        PipeOperator::TableSample { sample } => refuse(sample, SAMPLED),
        // The planner reads every field of the other operators that it knows, and refuses the rest.
        _ => Continue(()),
    }
}

fn window_spec(spec: &WindowSpec) -> ControlFlow<Refused> {
    let WindowSpec {
        window_name,
        partition_by: _,
        order_by: _,
        window_frame: _,
    } = spec;
    refuse_some(
        window_name,
        |name| format!("OVER ({name} …)"),
        "write the window out",
    )
}

fn ordinality(with_ordinality: bool) -> ControlFlow<Refused> {
    refuse_if(
        with_ordinality,
        "WITH ORDINALITY",
        "number the rows by row_number() OVER (…)",
    )
}

fn function_name(name: &ObjectName) -> ControlFlow<Refused> {
    refuse_if(
        name.0.len() > 1,
        format!("{name}(…)"),
        "name the function alone",
    )
}

fn unnamed(arg: &FunctionArg) -> ControlFlow<Refused> {
    match arg {
        FunctionArg::Unnamed(_) => Continue(()),
        FunctionArg::Named { .. } | FunctionArg::ExprNamed { .. } => {
            refuse(arg, "pass arguments by position")
        }
    }
}

/// Refuses a length or width that the engine does not enforce.
fn sql_type(data_type: &ast::DataType) -> ControlFlow<Refused> {
    use ast::DataType as T;
    match data_type {
        T::Varchar(Some(_)) | T::Char(Some(_)) | T::String(Some(_)) => refuse(
            data_type,
            "the engine would not truncate texts: write left(x, n)",
        ),
        T::Float(
            ast::ExactNumberInfo::Precision(_) | ast::ExactNumberInfo::PrecisionAndScale(..),
        ) => refuse(data_type, "write REAL or DOUBLE"),
        T::TinyInt(Some(_))
        | T::SmallInt(Some(_))
        | T::Int2(Some(_))
        | T::Int(Some(_))
        | T::Integer(Some(_))
        | T::Int4(Some(_))
        | T::BigInt(Some(_))
        | T::Int8(Some(_))
        | T::TinyIntUnsigned(Some(_))
        | T::SmallIntUnsigned(Some(_))
        | T::Int2Unsigned(Some(_))
        | T::IntUnsigned(Some(_))
        | T::IntegerUnsigned(Some(_))
        | T::Int4Unsigned(Some(_))
        | T::BigIntUnsigned(Some(_))
        | T::Int8Unsigned(Some(_)) => refuse(data_type, "write the type without a width"),
        T::Array(
            ast::ArrayElemTypeDef::AngleBracket(inner)
            | ast::ArrayElemTypeDef::SquareBracket(inner, _)
            | ast::ArrayElemTypeDef::Parenthesis(inner),
        ) => sql_type(inner),
        T::Struct(fields, _) => fields.iter().try_for_each(|field| {
            let ast::StructField {
                field_name: _,
                field_type,
                options,
            } = field;
            refuse_if(options.is_some(), field, "")?;
            sql_type(field_type)
        }),
        _ => Continue(()),
    }
}

impl Checker<'_> {
    fn count(&mut self, n: usize) -> ControlFlow<Refused> {
        self.tables += n;
        if self.tables > MAX_TABLES {
            return Break(Box::new(format!(
                "there are more than {MAX_TABLES} tables and subqueries; list many files as one table of the pipeline, or \
                 write an intermediate result as its own table"
            )));
        }
        Continue(())
    }

    fn function(&self, function: &Function) -> ControlFlow<Refused> {
        let call = Call::of(function)?;
        match call.over {
            Some(WindowType::NamedWindow(window)) => {
                return refuse(
                    format!("{}(…) OVER {window}", call.name),
                    "its SELECT defines no such window after WINDOW",
                );
            }
            Some(WindowType::WindowSpec(spec)) => window_spec(spec)?,
            None => {}
        }
        let (state, known) = (self.state, &call.known);
        let is_built_in = ["unnest", "unnest_outer", "make_map", "map"].contains(&known.as_str());
        let is_higher = state.higher_order_functions().contains_key(known);
        if is_built_in || is_higher {
            call.list.iter().try_for_each(unnamed)?;
        }
        if is_built_in || is_higher || state.scalar_functions().contains_key(known) {
            return call.takes_one_row();
        }
        let aggregate = state.aggregate_functions().get(known);
        match call.over {
            Some(WindowType::WindowSpec(spec)) => {
                call.in_window(spec, aggregate.map(AsRef::as_ref))
            }
            // The planner reads all clauses of an aggregate, or refuses them.
            _ => Continue(()),
        }
    }
}

/// A call of a function with its clauses.
struct Call<'a> {
    name: &'a ObjectName,
    /// The name of a function of the engine in lower case; empty for a qualified name.
    known: String,
    list: &'a [FunctionArg],
    clauses: &'a [FunctionArgumentClause],
    is_distinct: bool,
    /// Whether nulls are ignored, if the call says so.
    nulls: Option<&'a NullTreatment>,
    filter: &'a Option<Box<Expr>>,
    over: Option<&'a WindowType>,
    within_group: &'a [OrderByExpr],
}

impl<'a> Call<'a> {
    fn of(function: &'a Function) -> ControlFlow<Refused, Call<'a>> {
        let Function {
            name,
            uses_odbc_syntax: _,
            parameters,
            args,
            filter,
            null_treatment,
            over,
            within_group,
        } = function;
        if *parameters != FunctionArguments::None {
            return refuse(format!("{name}{parameters}(…)"), "");
        }
        let (list, clauses, is_distinct) = match args {
            FunctionArguments::None => (&[][..], &[][..], false),
            FunctionArguments::Subquery(_) => {
                return refuse(
                    format!("{name}(SELECT …)"),
                    "put the subquery into its own brackets",
                );
            }
            FunctionArguments::List(list) => {
                let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
                (&list.args[..], &list.clauses[..], is_distinct)
            }
        };
        let nulls = clauses.iter().find_map(|clause| match clause {
            FunctionArgumentClause::IgnoreOrRespectNulls(nulls) => Some(nulls),
            _ => None,
        });
        Continue(Call {
            name,
            known: match name.0.as_slice() {
                [one] => one.as_ident().map(lower).unwrap_or_default(),
                _ => String::new(),
            },
            list,
            clauses,
            is_distinct,
            nulls: nulls.or(null_treatment.as_ref()),
            filter,
            over: over.as_ref(),
            within_group,
        })
    }

    /// Refuses the clauses that a function of one row does not have.
    fn takes_one_row(&self) -> ControlFlow<Refused> {
        let name = self.name;
        let instead = format!("{name} takes one row at a time");
        let of = |clause: &str| format!("{name}(…) {clause}");
        let has_groups = !self.within_group.is_empty();
        refuse_if(self.is_distinct, format!("{name}(DISTINCT …)"), &instead)?;
        refuse_some(self.filter, |_| of("FILTER (…)"), &instead)?;
        refuse_some(&self.nulls, |nulls| of(&nulls.to_string()), &instead)?;
        refuse_if(self.over.is_some(), of("OVER (…)"), &instead)?;
        refuse_if(has_groups, of("WITHIN GROUP (…)"), &instead)?;
        if let Some(clause) = self.clauses.first() {
            refuse(format!("{name}(… {clause})"), &instead)?;
        }
        Continue(())
    }

    /// Refuses what an aggregate or a pure window function does not have in a window.
    fn in_window(
        &self,
        spec: &WindowSpec,
        aggregate: Option<&AggregateUDF>,
    ) -> ControlFlow<Refused> {
        let (name, known, nulls) = (self.name, self.known.as_str(), self.nulls);
        if subtracts(known) {
            refuse_some(
                &moving(spec),
                |start| format!("{name}(…) OVER (… {start} …)"),
                "the engine's results are wrong for frames whose first row moves: begin the frame with UNBOUNDED PRECEDING, or compute it from sums",
            )?;
        }
        let with_nulls = |nulls: &&NullTreatment| format!("{name}(…) {nulls}");
        let of_values = ["first_value", "last_value", "nth_value"].contains(&known);
        if let Some(aggregate) = aggregate.filter(|_| !of_values) {
            let keeps_nulls = aggregate.supports_null_handling_clause();
            return refuse_some(&nulls.filter(|_| !keeps_nulls), with_nulls, "");
        }
        refuse_if(self.is_distinct, format!("{name}(DISTINCT …) OVER (…)"), "")?;
        refuse_some(
            self.filter,
            |_| format!("{name}(…) FILTER (…) OVER (…)"),
            "",
        )?;
        let shifts = ["lag", "lead"].contains(&known);
        let skips_nulls = matches!(nulls, Some(NullTreatment::IgnoreNulls));
        if let (true, true, Some(offset)) = (shifts, skips_nulls, self.list.get(1)) {
            // The engine loses values beyond a gap (apache/datafusion#25471). It may evaluate a lag
            // as a lead in the opposite order, so both are refused.
            refuse_if(
                !["1", "-1"].contains(&offset.to_string().as_str()),
                format!("{name}(…, {offset}) IGNORE NULLS"),
                "the engine's results are wrong for other offsets than 1: leave the nulls out in a subquery",
            )?;
        }
        let takes_nulls = of_values || shifts;
        refuse_some(&nulls.filter(|_| !takes_nulls), with_nulls, "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::cases;
    use crate::read::lake;
    use crate::read::sql::checked_integers::CheckedIntegers;
    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use datafusion::prelude::{SessionConfig, SessionContext};
    use std::sync::Arc;

    fn session() -> SessionContext {
        let context =
            SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
        context.add_analyzer_rule(Arc::new(CheckedIntegers));
        let id: ArrayRef = Arc::new(Int64Array::from(vec![1, 1, 2, 2]));
        let t: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 1, 2]));
        let s: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a", "c"]));
        let rows = RecordBatch::try_from_iter([("id", id), ("t", t), ("s", s)]).unwrap();
        context.register_batch("x", rows.clone()).unwrap();
        context.register_batch("y", rows).unwrap();
        context
    }

    /// Clauses that the planner drops, and how the error names them.
    const DROPPED: &str = "
        SELECT * FROM x TABLESAMPLE (10) => TABLESAMPLE (10)
        SELECT * FROM x TABLESAMPLE BERNOULLI (1 PERCENT) REPEATABLE (7) => TABLESAMPLE BERNOULLI (1 PERCENT) REPEATABLE (7)
        SELECT * FROM x AS a TABLESAMPLE SYSTEM (1) => TABLESAMPLE SYSTEM (1)
        SELECT * FROM (SELECT * FROM x) AS a TABLESAMPLE (2 ROWS) => TABLESAMPLE (2 ROWS)
        SELECT * FROM x SAMPLE (10) => SAMPLE
        SELECT * FROM x FINAL => FINAL
        SELECT * FROM x NOLOCK => NOLOCK
        SELECT * FROM x PREWHERE id > 1 => PREWHERE id > 1
        SELECT * FROM x PARTITION (p1) => PARTITION (p1)
        SELECT * FROM x WITH (NOLOCK) => WITH (NOLOCK)
        SELECT * FROM x WITH ORDINALITY => WITH ORDINALITY
        SELECT * FROM x POSITIONAL JOIN y ON x.id = y.id => POSITIONAL
        SELECT * FROM x JOIN y => JOIN without ON or USING
        SELECT * FROM x LEFT JOIN y => JOIN without ON or USING
        SELECT * FROM x GLOBAL JOIN y ON x.id = y.id => GLOBAL
        SELECT * FROM x FOR UPDATE => FOR UPDATE
        SELECT * FROM x SETTINGS max_threads = 1 => SETTINGS max_threads = 1
        SELECT * FROM x FORMAT CSV => FORMAT CSV
        SELECT id, count(*) FROM x GROUP BY id WITH ROLLUP => WITH ROLLUP
        SELECT id, count(*) FROM x GROUP BY id WITH TOTALS => WITH TOTALS
        SELECT id FROM x START WITH id = 1 CONNECT BY id = t => START WITH
        SELECT * ILIKE '%d%' FROM x => * ILIKE '%d%'
        SELECT * REPLACE (1 AS nothing) FROM x => REPLACE
        SELECT * FROM x AS a (i INT, u INT, v TEXT) => a(i INT)
        WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a WHERE n < 9 LIMIT 3) SELECT * FROM a => LIMIT of a union in WITH RECURSIVE a
        WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a WHERE n < 9 ORDER BY n) SELECT * FROM a => ORDER BY of a union in WITH RECURSIVE a
        SELECT abs(DISTINCT id) FROM x => abs(DISTINCT …)
        SELECT abs(id) OVER (ORDER BY t) FROM x => abs(…) OVER (…)
        SELECT abs(id) FILTER (WHERE t = 1) FROM x => abs(…) FILTER (…)
        SELECT upper(s) IGNORE NULLS FROM x => upper(…) IGNORE NULLS
        SELECT upper(s ORDER BY t) FROM x => ORDER BY t
        SELECT row_number() FILTER (WHERE t = 1) OVER (ORDER BY t) FROM x => row_number(…) FILTER (…)
        SELECT rank() IGNORE NULLS OVER (ORDER BY t) FROM x => rank(…) IGNORE NULLS
        SELECT id FROM x WHERE id = 1 IS NOT DISTINCT FROM t = 1 AND s = 'a' => write brackets
        SELECT id FROM x WHERE s = 'a' AND id IS DISTINCT FROM t OR s = 'b' => IS [NOT] DISTINCT FROM t OR s = 'b'
        SELECT (t ^ id) XOR t FROM x => (t ^ id) XOR t
        SELECT stddev(t) OVER (ORDER BY t ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM x => stddev(…) OVER (… ROWS 3 PRECEDING …)
        SELECT bit_xor(t) OVER w FROM x WINDOW w AS (ORDER BY t RANGE BETWEEN CURRENT ROW AND 2 FOLLOWING) => bit_xor(…) OVER (… RANGE CURRENT ROW …)
        SELECT lead(t, 2) IGNORE NULLS OVER (ORDER BY t) FROM x => lead(…, 2) IGNORE NULLS
        SELECT lag(t, -2, 0 IGNORE NULLS) OVER (ORDER BY t) FROM x => lag(…, -2) IGNORE NULLS
        SELECT LAG(t, 1 + 1) IGNORE NULLS OVER w FROM x WINDOW w AS (ORDER BY t) => LAG(…, 1 + 1) IGNORE NULLS
        SELECT sum(t) OVER (w ORDER BY id) FROM x WINDOW w AS (PARTITION BY s) => OVER (w …)
        SELECT sum(t) FROM x HAVING sum(t) OVER w > 1 => OVER w
        SELECT trim(s, 'a', 'b') FROM x => TRIM(s, 'a', 'b')
        SELECT CAST(s AS VARCHAR(1)) FROM x => VARCHAR(1)
        SELECT s::CHAR(1) FROM x => CHAR(1)
        SELECT CAST(id AS FLOAT(53)) FROM x => FLOAT(53)
        SELECT CAST(id AS INT(3)) FROM x => INT(3)
        FROM x |> TABLESAMPLE BERNOULLI (10 PERCENT) => TABLESAMPLE
        FROM x |> AGGREGATE sum(t) AS n GROUP BY id ASC => ASC
        SELECT * INTO z FROM x => INTO z
        SELECT DISTINCT id FROM x WHERE t IN (SELECT t FROM y TABLESAMPLE (5)) => TABLESAMPLE (5)
    ";

    #[test]
    fn clauses_that_the_planner_drops_are_refused_at_every_level() {
        let state = session().state();
        let mut wrong = Vec::new();
        for (sql, named) in cases(DROPPED) {
            let within = [
                "{}",
                "SELECT * FROM ({}) AS q",
                "WITH q AS ({}) SELECT * FROM q",
                "SELECT * FROM y WHERE EXISTS ({})",
                "SELECT id FROM y UNION ALL ({})",
                "SELECT (SELECT max(id) FROM ({}) AS q) AS m FROM y",
                "WITH a AS (SELECT * FROM y JOIN ({}) AS q ON true) SELECT * FROM a",
            ];
            for around in within {
                let whole = around.replace("{}", sql);
                let what = match parse(&whole, &state) {
                    Ok(_) => "nothing is said".to_string(),
                    Err(what) => what,
                };
                // Inside brackets the parser itself may refuse a clause; at the top level it must
                // not.
                let is_syntax = around != "{}" && what.contains("Expected");
                if !what.contains(named) && !is_syntax {
                    wrong.push(format!("{whole}: {what}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Queries that return a number of rows.
    const SUPPORTED: &str = "
        FROM x => 4
        FROM x WHERE id = 1 => 2
        FROM x SELECT id => 4
        FROM x AS a JOIN y AS b USING (id, t) WHERE a.id = 1 ORDER BY b.t LIMIT 1 => 1
        FROM x |> WHERE id = 1 |> AGGREGATE count(*) AS n => 1
        SELECT * FROM (FROM x) AS q => 4
        SELECT * FROM x WHERE id % 10 = 2 => 2
        SELECT * FROM x WHERE ascii(right(s, 1)) % 2 = 1 => 3
        SELECT * EXCLUDE (s), upper(s) AS s FROM x AS final => 4
        SELECT x.id FROM x JOIN y ON x.id = y.id AND x.t = y.t CROSS JOIN (SELECT 1) => 4
        SELECT id, sum(t) OVER w AS n FROM x WINDOW w AS (PARTITION BY id) QUALIFY sum(t) OVER w > 2 ORDER BY max(t) OVER w => 4
        SELECT id, count(*) FROM x GROUP BY ROLLUP (id) => 3
        SELECT first_value(s) IGNORE NULLS OVER (ORDER BY t) FROM x => 4
        SELECT lead(s) IGNORE NULLS OVER w, lag(s, -1, 'z') IGNORE NULLS OVER w, lag(s, 3) OVER w FROM x WINDOW w AS (ORDER BY t) => 4
        SELECT stddev(t) OVER (ORDER BY t ROWS UNBOUNDED PRECEDING), sum(t) OVER (ORDER BY t ROWS 1 PRECEDING) FROM x => 4
        SELECT id FROM x WHERE (id IS DISTINCT FROM t) AND t IN (1, 2) AND t NOT IN (3) AND NOT (s IN ('a') OR s IN ('z')) => 1
        SELECT count(DISTINCT s) FILTER (WHERE t > 1) FROM x => 1
        SELECT id FROM x UNION SELECT t FROM y ORDER BY 1 LIMIT 1 => 1
        SELECT DISTINCT ON (id) id, s FROM x ORDER BY id, t DESC => 2
        WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a WHERE n < 9) SELECT * FROM a => 9
        SELECT /*+ a comment */ * FROM x => 4
        SELECT CASE WHEN id = 1 THEN 'a' ELSE 'b' END AS c, array_agg(s ORDER BY t) FROM x GROUP BY 1 => 2
    ";

    #[tokio::test]
    async fn supported_queries_are_accepted_and_run() {
        let context = session();
        let mut wrong = Vec::new();
        for (sql, rows) in cases(SUPPORTED) {
            let rows: usize = rows.parse().unwrap();
            let run = async {
                let statement = parse(sql, &context.state())?;
                let plan = context
                    .state()
                    .statement_to_plan(statement)
                    .await
                    .map_err(|e| e.to_string())?;
                let frame = context.execute_logical_plan(plan).await;
                frame
                    .map_err(|e| e.to_string())?
                    .count()
                    .await
                    .map_err(|e| e.to_string())
            };
            let found: Result<usize, String> = run.await;
            if found != Ok(rows) {
                wrong.push(format!("{sql}: {found:?}, not {rows}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn exactly_one_query_is_accepted() {
        let state = session().state();
        for (sql, named) in [
            ("", "there is no SQL"),
            ("-- nothing", "there is no SQL"),
            ("SELECT 1; SELECT 2", "more than one statement"),
            ("DROP TABLE x", "`DROP` is not a query"),
            ("COPY x TO 'out.csv'", "`COPY` is not a query"),
            ("EXPLAIN SELECT * FROM x", "`EXPLAIN` is not a query"),
            ("SHOW TABLES", "`SHOW` is not a query"),
            ("SELECT * FROM", "Expected"),
            ("SELECT 'open", "Unterminated string literal"),
        ] {
            let what = parse(sql, &state).expect_err(sql);
            assert!(what.contains(named), "{sql}: {what}");
            assert!(!what.contains("ParserError"), "{what}");
        }
    }

    /// Long and deep texts by their form and the number of repetitions.
    fn long(form: &str, n: usize) -> String {
        let many = |one: &str, by: &str| vec![one; n].join(by);
        match form {
            "AND" => format!("SELECT * FROM x WHERE {}", many("id > 0", " AND ")),
            "OR" => format!("SELECT * FROM x WHERE {}", many("id = 7", " OR ")),
            "+" => format!("SELECT {} AS n FROM x", many("id", " + ")),
            "||" => format!("SELECT {} AS n FROM x", many("s", " || ")),
            "::" => format!("SELECT id{} AS n FROM x", "::BIGINT".repeat(n)),
            "IS" => format!("SELECT id{} AS n FROM x", " IS NULL".repeat(n)),
            "CASE" => format!(
                "SELECT {} 1{} AS n FROM x",
                "CASE WHEN id = 1 THEN 0 ELSE ".repeat(n),
                " END".repeat(n)
            ),
            "(" => format!("SELECT {}id{} AS n FROM x", "(".repeat(n), ")".repeat(n)),
            "abs" => format!("SELECT {}id{} AS n FROM x", "abs(".repeat(n), ")".repeat(n)),
            "NOT" => format!("SELECT * FROM x WHERE {} true", "NOT ".repeat(n)),
            "-" => format!("SELECT {} id AS n FROM x", "- ".repeat(n)),
            "UNION" => many("SELECT id FROM x", " UNION ALL "),
            "JOIN" => {
                let joins = (0..n).map(|i| format!(" JOIN y AS y{i} ON x.id = y{i}.id"));
                format!("SELECT x.id FROM x{}", joins.collect::<String>())
            }
            "," => {
                let tables = (0..n).map(|i| format!("(SELECT {i} AS n{i}) AS q{i}"));
                format!(
                    "SELECT 1 AS n FROM {}",
                    tables.collect::<Vec<_>>().join(", ")
                )
            }
            "|>" => format!("FROM x{}", " |> WHERE id > 0".repeat(n)),
            "WITH" => {
                let mut ctes = vec!["c0 AS (SELECT * FROM x)".to_string()];
                ctes.extend((1..n).map(|i| format!("c{i} AS (SELECT * FROM c{})", i - 1)));
                format!("WITH {} SELECT * FROM c{}", ctes.join(", "), n - 1)
            }
            "SELECT" => format!("{}x{}", "SELECT * FROM (".repeat(n), ") AS q".repeat(n)),
            other => panic!("{other}"),
        }
    }

    const FORMS: [&str; 17] = [
        "AND", "OR", "+", "||", "::", "IS", "CASE", "(", "abs", "NOT", "-", "UNION", "JOIN", ",",
        "|>", "WITH", "SELECT",
    ];

    /// Runs on a stack of the size that threads have which plan or run SQL.
    fn on_a_thread(run: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().stack_size(lake::STACK_BYTES);
        thread.spawn(run).unwrap().join().expect("no panic");
    }

    #[test]
    fn too_long_a_text_is_refused() {
        on_a_thread(|| {
            let state = session().state();
            for form in FORMS {
                for n in [8_000, 50_000] {
                    let what = parse(&long(form, n), &state).expect_err(form);
                    assert!(what.contains("more than"), "{form}: {what}");
                }
            }
        });
    }

    #[test]
    fn the_longest_accepted_text_is_planned_and_run() {
        for form in FORMS {
            on_a_thread(move || {
                let context = session();
                // Finds the largest accepted number of repetitions.
                let (mut low, mut high) = (1, 10_000);
                while high - low > 1 {
                    let middle = (low + high) / 2;
                    match parse(&long(form, middle), &context.state()) {
                        Ok(_) => low = middle,
                        Err(_) => high = middle,
                    }
                }
                // The JOIN form would produce the product of all its tables, so it is planned but
                // not run.
                let text = long(form, low);
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let statement = parse(&text, &context.state()).expect(form);
                    let plan = context
                        .state()
                        .statement_to_plan(statement)
                        .await
                        .expect(form);
                    let frame = context.execute_logical_plan(plan).await.expect(form);
                    let plan = frame.create_physical_plan().await.expect(form);
                    if form != "JOIN" {
                        let ran =
                            datafusion::physical_plan::collect(plan, context.task_ctx()).await;
                        ran.expect(form);
                    }
                });
            });
        }
    }

    #[test]
    fn lists_have_no_length_limit() {
        on_a_thread(|| {
            let state = session().state();
            let list = (0..100_000)
                .map(|n| n.to_string())
                .collect::<Vec<_>>()
                .join(", ");
            parse(&format!("SELECT * FROM x WHERE id IN ({list})"), &state).expect("a list");
            let branches = (0..2_000).map(|n| format!("WHEN id = {n} AND t > 0 THEN {n} + 1"));
            let branches = branches.collect::<Vec<_>>().join(" ");
            parse(&format!("SELECT CASE {branches} END AS n FROM x"), &state).expect("a CASE");
        });
    }
}
