import type { Session } from '../connections/session.js';

/** The values of the parameters by their names. */
export type Values = Readonly<Record<string, unknown>>;

/** Runs a statement. Returns the rows that it returns, or something for each row that it has changed. */
export type RunStatement<Name extends string> = (
  session: Session,
  name: Name,
  values: Values,
) => Promise<readonly unknown[]>;

/** A statement as a driver takes it. */
interface Statement {
  readonly sql: string;
  /** In the order of the placeholders. `nowUs` is the value of `:now`. */
  parametersFrom(values: Values, nowUs?: number): readonly unknown[];
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
    return {
      sql,
      parametersFrom(values, nowUs) {
        const parameters = Array<unknown>(names.length);
        for (const [index, name] of names.entries()) {
          const value = name === 'now' ? nowUs : values[name];
          parameters[index] = typeof value === 'bigint' ? String(value) : value;
        }
        return parameters;
      },
    };
  };
  return (name: string, textOf: () => string): Statement => {
    const statement = statements.get(name) ?? build(textOf());
    statements.set(name, statement);
    return statement;
  };
}
