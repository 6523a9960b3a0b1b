import ts from 'typescript';

export interface Instrumented {
  /** TypeScript again, with a call of the runtime between each two lines and around each await. */
  readonly code: string;
  /** Names of the places at which a process can be stopped, in the order of the text. */
  readonly checkpoints: readonly string[];
  /** Names of the elections that decorated methods join. */
  readonly elections: readonly string[];
}

interface Changes {
  /** Takes the place of each `leaseMs`, so that a round does not last for half a minute. */
  readonly leaseMs: number;
  /** Where a package is imported from. */
  readonly specifierOf: (name: string) => string;
}

const SECTION = 'section__';
const ARGUMENTS = 'arguments__';
const { factory } = ts;

/**
 * Instruments each method and each function with a block. The text stays as printed but for schedules, which become one
 * second, leases, and where packages come from. A method without an await of its own gets one, for the work it leaves out.
 */
export function instrument(code: string, changes: Changes): Instrumented {
  const source = ts.createSourceFile('recipe.ts', code, ts.ScriptTarget.Latest, true);
  const instrumenter = new Instrumenter(source, changes);
  const { transformed } = ts.transform(source, [() => (file) => instrumenter.file(file)]);
  return {
    code: ts.createPrinter().printFile(transformed[0]!),
    checkpoints: instrumenter.checkpoints,
    elections: [...instrumenter.elections],
  };
}

class Instrumenter {
  readonly checkpoints: string[] = [];
  readonly elections = new Set<string>();
  readonly #source: ts.SourceFile;
  readonly #changes: Changes;

  constructor(source: ts.SourceFile, changes: Changes) {
    this.#source = source;
    this.#changes = changes;
  }

  file(file: ts.SourceFile): ts.SourceFile {
    return this.#children(file, '');
  }

  #children<T extends ts.Node>(node: T, path: string): T {
    return ts.visitEachChild(node, (child) => this.#visit(child, path), undefined);
  }

  #visit(node: ts.Node, path: string): ts.Node {
    if (ts.isImportDeclaration(node)) return this.#import(node);
    if (ts.isDecorator(node)) return this.#decorator(node);
    if (ts.isPropertyAssignment(node)) return this.#property(node, path);
    if (ts.isClassDeclaration(node)) return this.#children(node, node.name?.text ?? '');
    if (ts.isMethodDeclaration(node) && node.body) return this.#method(node, path);
    if (ts.isFunctionDeclaration(node) && node.body) return this.#function(node);
    if (ts.isArrowFunction(node) && ts.isBlock(node.body)) return this.#arrow(node, path);
    if (path !== '' && ts.isBlock(node)) {
      return factory.updateBlock(node, this.#statements(node.statements, path));
    }
    if (path !== '' && ts.isAwaitExpression(node)) return this.#await(node, path);
    return this.#children(node, path);
  }

  #import(node: ts.ImportDeclaration): ts.Node {
    const { text } = node.moduleSpecifier as ts.StringLiteral;
    const { modifiers, importClause, attributes } = node;
    const from = factory.createStringLiteral(this.#changes.specifierOf(text));
    return factory.updateImportDeclaration(node, modifiers, importClause, from, attributes);
  }

  /** Schedules become one second. */
  #decorator(node: ts.Decorator): ts.Node {
    const { expression: call } = node;
    if (!ts.isCallExpression(call)) return node;
    const [first, ...others] = call.arguments;
    const name = call.expression.getText(this.#source);
    if (name === 'OnElected' && first && ts.isStringLiteral(first)) this.elections.add(first.text);
    const rest = others.map((argument) => this.#children(argument, ''));
    const scheduled = first && scheduleEachSecond(name, first);
    const args = first ? [scheduled ?? this.#children(first, ''), ...rest] : [];
    return factory.updateDecorator(
      node,
      factory.updateCallExpression(call, call.expression, call.typeArguments, args),
    );
  }

  #property(node: ts.PropertyAssignment, path: string): ts.Node {
    const value = { leaseMs: this.#changes.leaseMs, jitterMs: 20 }[node.name.getText(this.#source)];
    if (value === undefined) return this.#children(node, path);
    return factory.updatePropertyAssignment(node, node.name, factory.createNumericLiteral(value));
  }

  #method(node: ts.MethodDeclaration, className: string): ts.Node {
    // Runs once for each release, so nobody would come by again.
    if (decoratorsOf(node).includes('Timeout')) return this.#children(node, '');
    const { asteriskToken, name, questionToken, typeParameters, parameters, type } = node;
    const path = `${className}.${name.getText(this.#source)}`;
    const body = this.#body(node, path, factory.createIdentifier('arguments'));
    const modifiers = node.modifiers?.map((modifier) => this.#visit(modifier, '') as ts.ModifierLike);
    return factory.updateMethodDeclaration(
      ...([node, modifiers, asteriskToken, name, questionToken] as const),
      ...([typeParameters, parameters, type, body] as const),
    );
  }

  #function(node: ts.FunctionDeclaration): ts.Node {
    const { modifiers, asteriskToken, name, typeParameters, parameters, type } = node;
    const body = this.#body(node, name?.text ?? 'default', factory.createIdentifier('arguments'));
    return factory.updateFunctionDeclaration(
      ...([node, modifiers, asteriskToken, name, typeParameters, parameters, type, body] as const),
    );
  }

  /** An arrow function has no `arguments`. */
  #arrow(node: ts.ArrowFunction, outer: string): ts.Node {
    const given = factory.createIdentifier(ARGUMENTS);
    const rest = factory.createToken(ts.SyntaxKind.DotDotDotToken);
    const elements = node.parameters.map(({ dotDotDotToken, name, initializer }) =>
      factory.createBindingElement(dotDotDotToken, undefined, name, initializer),
    );
    const unpacked = constant(factory.createArrayBindingPattern(elements), given);
    const path = `${outer}>${calleeOf(node)}`;
    const body = this.#body(node, path, given, [unpacked]);
    const parameter = factory.createParameterDeclaration(undefined, rest, given);
    const { modifiers, equalsGreaterThanToken } = node;
    return factory.updateArrowFunction(
      ...([node, modifiers, undefined, [parameter], undefined, equalsGreaterThanToken, body] as const),
    );
  }

  #body(
    node: ts.MethodDeclaration | ts.FunctionDeclaration | ts.ArrowFunction,
    path: string,
    given: ts.Expression,
    before: ts.Statement[] = [],
  ): ts.Block {
    const { statements } = node.body as ts.Block;
    const recipe = factory.createIdentifier('recipe__');
    const entered = call(recipe, 'enter', [factory.createStringLiteral(path), given]);
    const isAsync = node.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.AsyncKeyword) ?? false;
    const work = isAsync && !hasAwait(node.body!) ? [this.#work(path)] : [];
    const inside = [...work, ...this.#statements(statements, path)];
    const last = statements.at(-1);
    if (!last || !ts.isReturnStatement(last)) inside.push(this.#checkpoint(path, 'end'));
    const left = factory.createExpressionStatement(call(section(), 'exit', []));
    const guarded = factory.createTryStatement(
      factory.createBlock(inside, true),
      undefined,
      factory.createBlock([left], true),
    );
    return factory.createBlock([...before, constant(section(), entered), guarded], true);
  }

  #statements(statements: readonly ts.Statement[], path: string): ts.Statement[] {
    return statements.flatMap((statement) => [
      this.#checkpoint(path, `line ${this.#lineOf(statement)}`),
      this.#visit(statement, path) as ts.Statement,
    ]);
  }

  #await(node: ts.AwaitExpression, path: string): ts.Node {
    const awaited = `await ${nameOfCall(node.expression)} in line ${this.#lineOf(node)}`;
    const pending = this.#named(path, `during ${awaited}`);
    const inner = this.#visit(node.expression, path) as ts.Expression;
    const result = factory.createAwaitExpression(call(section(), 'during', [pending, inner]));
    // Where it is the whole line, the checkpoint of the next line is the same moment.
    if (isWholeLine(node)) return call(section(), 'result', [pending, result]);
    return call(section(), 'resultAt', [pending, this.#named(path, `after ${awaited}`), result]);
  }

  #work(path: string): ts.Statement {
    const pending = this.#named(path, 'during work');
    return factory.createExpressionStatement(
      factory.createAwaitExpression(call(section(), 'during', [pending, call(section(), 'work', [])])),
    );
  }

  #checkpoint(path: string, when: string): ts.Statement {
    return factory.createExpressionStatement(call(section(), 'at', [this.#named(path, when)]));
  }

  #named(path: string, when: string): ts.StringLiteral {
    const same = this.checkpoints.filter((name) => name.startsWith(`${path} ${when}`)).length;
    const name = `${path} ${when}${same > 0 ? ` (${same + 1})` : ''}`;
    this.checkpoints.push(name);
    return factory.createStringLiteral(name);
  }

  #lineOf(node: ts.Node): number {
    return this.#source.getLineAndCharacterOfPosition(node.getStart(this.#source)).line + 1;
  }
}

function scheduleEachSecond(decorator: string, argument: ts.Expression): ts.Expression | undefined {
  if (['SingletonCron', 'Cron'].includes(decorator) && ts.isStringLiteral(argument)) {
    return factory.createStringLiteral('* * * * * *');
  }
  return decorator === 'Interval' && ts.isNumericLiteral(argument)
    ? factory.createNumericLiteral(1_000)
    : undefined;
}

const decoratorsOf = (node: ts.MethodDeclaration): string[] =>
  (ts.getDecorators(node) ?? []).map(({ expression }) => nameOfCall(expression));

const section = () => factory.createIdentifier(SECTION);

const call = (target: ts.Expression, method: string, args: readonly ts.Expression[]) =>
  factory.createCallExpression(factory.createPropertyAccessExpression(target, method), undefined, args);

const constant = (name: ts.BindingName, value: ts.Expression): ts.Statement =>
  factory.createVariableStatement(
    undefined,
    factory.createVariableDeclarationList(
      [factory.createVariableDeclaration(name, undefined, undefined, value)],
      ts.NodeFlags.Const,
    ),
  );

/** The function that an arrow function is handed to. */
const calleeOf = (node: ts.ArrowFunction): string =>
  ts.isCallExpression(node.parent) ? nameOfCall(node.parent) : 'callback';

function nameOfCall(node: ts.Expression): string {
  if (!ts.isCallExpression(node)) return 'promise';
  const { expression: callee } = node;
  if (ts.isPropertyAccessExpression(callee)) return callee.name.text;
  return ts.isIdentifier(callee) ? callee.text : 'promise';
}

const isWholeLine = ({ parent }: ts.AwaitExpression): boolean =>
  ts.isExpressionStatement(parent) || ts.isVariableDeclaration(parent);

/** Those of functions inside do not count. */
function hasAwait(node: ts.Node): boolean {
  return (
    ts.forEachChild(
      node,
      (child) => ts.isAwaitExpression(child) || (!ts.isFunctionLike(child) && hasAwait(child)),
    ) ?? false
  );
}
