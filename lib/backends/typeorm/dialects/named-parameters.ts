/** The values of the parameters by their names. */
export type Values = Readonly<Record<string, unknown>>;

/** A statement as a driver takes it. */
interface Statement {
  readonly sql: string;
  /** In the order of the placeholders. `others` has the values of the names that `values` lacks. */
  parametersFrom(values: Values, others?: Values): readonly unknown[];
}

interface StatementBuilderOptions {
  /** Texts to insert in place of their names, such as the quoted name of the table for `:table`. */
  readonly constants: Readonly<Record<string, string>>;
  /** The placeholders are `$1`, `$2`, … instead of a `?` for each occurrence of a name. */
  readonly isNumbered?: boolean;
}

/** Not the second colon of `::text`. */
const NAME = /(?<!:):([a-z]\w*)/gi;

/** Returns a function that builds statements from texts with named parameters, such as `:key`, each text once. */
export function statementBuilder({ constants, isNumbered = false }: StatementBuilderOptions) {
  const statements = new Map<string, Statement>();
  const build = (text: string): Statement => {
    const names: string[] = [];
    const sql = text.replace(NAME, (_, name: string) => {
      const constant = constants[name];
      if (constant !== undefined) return constant;
      if (!isNumbered || !names.includes(name)) names.push(name);
      return isNumbered ? `$${names.indexOf(name) + 1}` : '?';
    });
    const toParameter = (value: unknown) => (typeof value === 'bigint' ? String(value) : value);
    return {
      sql,
      parametersFrom: (values, others = values) =>
        names.map((name) => toParameter(name in values ? values[name] : others[name])),
    };
  };
  return (name: string, textOf: () => string): Statement => {
    const statement = statements.get(name) ?? build(textOf());
    statements.set(name, statement);
    return statement;
  };
}
