// What the scripts share: a step that says its name, and when it fails shows what the server answered.

export async function step(name, run) {
  try {
    const result = await run();
    console.info(`${name}: ok`);
    return result;
  } catch (error) {
    const answer = error.response?.data ?? error.data ?? error.content;
    console.error(`${name}: failed\n${error.stack}\n${answer ? JSON.stringify(answer, null, 2) : ""}`);
    process.exit(1);
  }
}
