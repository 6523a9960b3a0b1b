/**
 * Where the files of the page are. In CommonJS, because the source of both builds can then name its own folder. The path
 * leads to the same files from the source and from both builds, so the package has them once.
 */
const pageFolder = `${__dirname}/../../lib/board/page`;

export = pageFolder;
