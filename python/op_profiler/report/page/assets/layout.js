// Places for the boxes of a graph, in layers: Dagre, in a worker where the browser lets a file have one.

const WORK = `onmessage = ({ data: { nodes, edges, options } }) => {
  const graph = new dagre.graphlib.Graph().setGraph(options).setDefaultEdgeLabel(() => ({}));
  for (const [id, width, height] of nodes) graph.setNode(id, { width, height });
  for (const [from, to] of edges) graph.setEdge(from, to);
  dagre.layout(graph);
  postMessage(nodes.map(([id]) => [id, graph.node(id).x, graph.node(id).y]));
};`;

/**
 * Centres of boxes.
 *
 * @param {[string, number, number][]} nodes id, width and height
 * @param {[string, string][]} edges ids
 * @returns {Promise<Map<string, {x: number, y: number}>>}
 */
export function layout(nodes, edges) {
  const options = { rankdir: "TB", nodesep: 26, ranksep: 34, ranker: nodes.length > 250 ? "longest-path" : "network-simplex" };
  const library = [...document.scripts].find((script) => script.text.includes("var dagre=")).text;
  const address = URL.createObjectURL(new Blob([library, "\n", WORK], { type: "text/javascript" }));
  return new Promise((found, failed) => {
    const worker = new Worker(address);
    const end = () => { worker.terminate(); URL.revokeObjectURL(address); };
    worker.onerror = (event) => { end(); failed(new Error(event.message)); };
    worker.onmessage = ({ data }) => { end(); found(new Map(data.map(([id, x, y]) => [id, { x, y }]))); };
    worker.postMessage({ nodes, edges, options });
  });
}
