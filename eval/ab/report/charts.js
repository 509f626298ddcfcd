<<<<<<<< HEAD:eval/ab/report/charts.cpp
#include "eval/ab/report/data.hpp"

namespace keel {

// All text goes in by textContent or an attribute: nothing of the data is ever read as HTML.
const std::string_view ab_report_charts = R"js(
========
>>>>>>>> 41bb4cc (eval: keep JavaScript and CSS in files which the build embeds):eval/compare/ab/charts.js
const root=document.documentElement;
function put(node,attributes,children){
 for(const k in attributes){const v=attributes[k];
  if(v===null||v===undefined)continue;
  if(k==="text")node.textContent=v;else if(k.startsWith("on"))node.addEventListener(k.slice(2),v);else node.setAttribute(k,v)}
 for(const c of children)if(c!==null&&c!==undefined)node.append(c);
 return node}
function el(tag,attributes,...children){return put(document.createElement(tag),attributes||{},children)}
function sv(tag,attributes,...children){return put(document.createElementNS("http://www.w3.org/2000/svg",tag),attributes||{},children)}
const isDark=()=>root.dataset.theme==="dark";

const redraws=[];
// Draws now, and again when the width or the theme changes.
function drawn(host,draw){
 const again=()=>{host.replaceChildren();draw(host,Math.max(280,Math.min(1140,host.clientWidth||700)))};
 redraws.push(again);return again}
let pending=0;
addEventListener("resize",()=>{cancelAnimationFrame(pending);pending=requestAnimationFrame(()=>redraws.forEach(f=>f()))});

function num(v){
 if(v===null||v===undefined)return"-";
 const a=Math.abs(v);
 if(a===0)return"0";if(a>=1e6)return v.toExponential(2);if(a>=1000)return v.toFixed(0);
 if(a>=100)return v.toFixed(1);if(a>=10)return v.toFixed(2);if(a>=0.01)return v.toFixed(3);
 if(a>=0.0001)return v.toFixed(5);return v.toExponential(1)}
function tick(v){return String(Number(v.toPrecision(4)))}
function bytes(v){
 if(v===null||v===undefined)return"-";
 if(v<1024)return v.toFixed(0)+" B";
 const units=["KiB","MiB","GiB","TiB"];let i=-1;do{v/=1024;i++}while(v>=1024&&i<3);
 return(v>=100?v.toFixed(0):v>=10?v.toFixed(1):v.toFixed(2))+" "+units[i]}
// In the unit of the axis, so that neighbours can be compared.
function byteTick(v,unit){return tick(v/unit)+" "+["B","KiB","MiB","GiB","TiB","PiB"][Math.round(Math.log2(unit)/10)]}
const percent=v=>(v>0?"+":"")+(100*v).toFixed(Math.abs(v)<0.1?2:1)+"%";
const signed=(v,ratio)=>v===null?"-":ratio?percent(v):(v>0?"+":"")+num(v);
const pText=p=>p===null?"-":p<0.0001?"<0.0001":p<0.01?p.toFixed(4):p.toFixed(3);

function nice(low,high,count,unit,least){
 if(!(high>low)){const d=Math.abs(low)||1;low-=d*0.05;high+=d*0.05}
 unit=unit||1;
 const raw=(high-low)/unit/count,power=Math.pow(10,Math.floor(Math.log10(raw))),f=raw/power;
 const step=Math.max(least||0,(f<1.5?1:f<3?2:f<7?5:10)*power*unit),out=[];
 for(let v=Math.ceil(low/step-1e-9)*step;v<=high+step*1e-9;v+=step)out.push(Math.abs(v)<step*1e-9?0:v);
 return out}
function powers(low,high,room){
 const out=[];let p=Math.pow(2,Math.ceil(Math.log2(low)-1e-9));
 for(;p<=high*1.0001;p*=2)out.push(p);
 while(out.length>room)for(let i=out.length-(out.length%2?2:1);i>=0;i-=2)out.splice(i,1);
 return out}

const dashes=["","6 3","2 3","8 3 2 3"];
function style(i){return{colour:"var(--c"+i%10+")",dash:dashes[Math.floor(i/10)%4]}}

// options: series [{name,colour,dash,points:[{x,y,low,high,mark,ring,title}],steps}], xBytes, yBytes, logX, xName, yName, hidden (a Set)
function lineChart(host,width,o){
 const shown=o.series.filter(s=>!o.hidden.has(s.name)&&s.points.length>0);
 const height=Math.round(Math.max(240,Math.min(380,width*0.5))),left=o.yBytes?72:58,right=14,top=12,bottom=44;
 const svg=sv("svg",{width:width,height:height,viewBox:"0 0 "+width+" "+height,role:"img","aria-label":o.yName+" by "+o.xName});
 let x0=Infinity,x1=-Infinity,y0=o.zero?0:Infinity,y1=-Infinity;
 for(const s of shown)for(const p of s.points){
  x0=Math.min(x0,p.x);x1=Math.max(x1,p.x);
  for(const v of[p.y,p.low,p.high])if(v!==null&&v!==undefined){y0=Math.min(y0,v);y1=Math.max(y1,v)}}
 if(shown.length===0){svg.append(sv("text",{x:left,y:40,text:"nothing to show"}));host.append(svg);return svg}
 const log=o.logX&&x0>0&&x1/x0>4;
 if(log){x0/=1.12;x1*=1.12}else if(x0===x1){const d=Math.abs(x0)*0.1||1;x0-=d;x1+=d}else if(!o.tight){const d=(x1-x0)*0.03;x0=Math.max(x0>=0?0:-Infinity,x0-d);x1+=d}
 if(y0===y1){const d=Math.abs(y0)*0.1||0.5;if(!o.zero)y0-=d;y1+=d}
 const pad=(y1-y0)*0.05;if(!o.zero)y0-=pad;y1+=pad;
 const fx=v=>left+(width-left-right)*(log?Math.log(v/x0)/Math.log(x1/x0):(v-x0)/(x1-x0));
 const fy=v=>top+(height-top-bottom)*(1-(v-y0)/(y1-y0));
 const unitOf=v=>Math.pow(1024,Math.max(0,Math.floor(Math.log2(Math.max(v,1))/10)));
 const room=Math.max(2,Math.floor((width-left)/(o.xBytes?95:70)));
 for(const v of nice(y0,y1,5,o.yBytes?unitOf(y1):1)){
  svg.append(sv("line",{x1:left,x2:width-right,y1:fy(v),y2:fy(v),class:"grid"}),
   sv("text",{x:left-7,y:fy(v)+4,"text-anchor":"end",text:o.yBytes?byteTick(v,unitOf(y1)):tick(v)}))}
 const xs=log?powers(x0,x1,room):nice(x0,x1,room,o.xBytes?unitOf(x1):1,o.xBytes?0:1);
 for(const v of xs)svg.append(sv("line",{x1:fx(v),x2:fx(v),y1:height-bottom,y2:height-bottom+4,class:"axis"}),
   sv("text",{x:Math.min(fx(v),width-30),y:height-bottom+17,"text-anchor":"middle",text:o.xBytes?byteTick(v,log?unitOf(v):unitOf(x1)):tick(v)}));
 svg.append(sv("path",{d:"M"+left+" "+top+"V"+(height-bottom)+"H"+(width-right),class:"axis",fill:"none"}),
  sv("text",{x:(left+width-right)/2,y:height-8,"text-anchor":"middle",text:o.xName}),
  sv("text",{x:-(top+height-bottom)/2,y:13,transform:"rotate(-90)","text-anchor":"middle",text:o.yName}));
 for(const s of shown){
  const banded=s.points.filter(p=>p.low!==null&&p.low!==undefined);
  if(banded.length>1&&banded.length===s.points.length&&s.line!==false)
   svg.append(sv("path",{d:"M"+banded.map(p=>fx(p.x).toFixed(1)+" "+fy(p.high).toFixed(1)).join("L")+"L"+
     banded.slice().reverse().map(p=>fx(p.x).toFixed(1)+" "+fy(p.low).toFixed(1)).join("L")+"Z",
     style:"fill:"+s.colour,"fill-opacity":0.13,stroke:"none"}))}
 for(const s of shown){
  if(s.points.length>1&&s.line!==false)
   svg.append(sv("path",{d:"M"+s.points.map(p=>fx(p.x).toFixed(1)+" "+fy(p.y).toFixed(1)).join("L"),
    style:"stroke:"+s.colour,"stroke-width":2,"stroke-dasharray":s.dash||null,"stroke-linejoin":"round",fill:"none"}));
  for(const p of s.points){
   if(s.points.length===1&&p.low!==null&&p.low!==undefined)
    svg.append(sv("path",{d:"M"+fx(p.x)+" "+fy(p.low)+"V"+fy(p.high),style:"stroke:"+s.colour,"stroke-width":1.5}));
   if(p.mark)svg.append(sv("path",{d:"M"+fx(p.x).toFixed(1)+" "+(fy(p.y)-4).toFixed(1)+"l-4 -7h8z",style:"fill:"+s.colour},sv("title",{text:p.title})));
   if(s.dots===false)continue;
   if(p.ring)svg.append(sv("circle",{cx:fx(p.x),cy:fy(p.y),r:7.5,fill:"none",style:"stroke:"+s.colour,"stroke-width":1.5}));
   svg.append(sv("circle",{cx:fx(p.x),cy:fy(p.y),r:4,style:"fill:"+s.colour+";stroke:var(--card)"},sv("title",{text:p.title})))}}
 host.append(svg);return svg}

function legend(host,series,hidden,again){
 const box=el("div",{class:"legend"});
 for(const s of series){
  const b=el("button",{type:"button","aria-pressed":String(!hidden.has(s.name)),title:"show or hide",onclick:()=>{
    if(hidden.has(s.name))hidden.delete(s.name);else hidden.add(s.name);again()}},
   sv("svg",{width:22,height:10},sv("line",{x1:0,x2:22,y1:5,y2:5,style:"stroke:"+s.colour,"stroke-width":3,"stroke-dasharray":s.dash||null})),
   el("span",{text:s.name}));
  box.append(b)}
 host.append(box)}

function mix(a,b,t){return[0,1,2].map(i=>Math.round(a[i]+(b[i]-a[i])*t))}
const rgb=c=>"rgb("+c.join(",")+")";
const inkOn=c=>0.299*c[0]+0.587*c[1]+0.114*c[2]>140?"#14171a":"#f4f6f8";
// t from 0 to 1
function sequential(t){
 const stops=isDark()?[[32,38,46],[30,78,128],[70,150,214],[198,228,250]]:[[246,247,249],[170,205,235],[62,131,192],[13,58,110]];
 const at=Math.max(0,Math.min(0.9999,t))*3,i=Math.floor(at);return mix(stops[i],stops[i+1],at-i)}
// t from -1 to 1
function diverging(t){
 const middle=isDark()?[38,44,52]:[247,247,247],low=isDark()?[230,126,60]:[190,84,16],high=isDark()?[92,168,240]:[24,98,172];
 return mix(middle,t<0?low:high,Math.min(1,Math.abs(t)))}

// rows: depths from the beginning of the prompt; columns: lengths. values row by row, null where nothing was asked.
function heatMap(host,width,o){
 const nx=o.lengths.length,ny=o.depths.length,left=52,top=6,bottom=58;
 const cw=Math.min(90,(width-left-8)/nx),ch=Math.max(14,Math.min(30,300/ny)),w=Math.max(left+cw*nx+8,Math.min(width,270)),h=top+ch*ny+bottom;
 const svg=sv("svg",{width:w,height:h,viewBox:"0 0 "+w+" "+h,role:"img","aria-label":o.name});
 const colour=v=>o.centred?diverging(o.reach>0?v/o.reach:0):sequential(o.high>o.low?(v-o.low)/(o.high-o.low):0.5);
 for(let y=0;y<ny;y++){
  if(ch>=14||y%2===0)svg.append(sv("text",{x:left-6,y:top+ch*(y+0.5)+4,"text-anchor":"end",text:(100*o.depths[y]).toFixed(0)+"%"}));
  for(let x=0;x<nx;x++){
   const v=o.values[y*nx+x];
   if(v===null){svg.append(sv("rect",{x:left+cw*x,y:top+ch*y,width:cw-1,height:ch-1,fill:"none",class:"grid"}));continue}
   const c=colour(v);
   svg.append(sv("rect",{x:left+cw*x,y:top+ch*y,width:cw-1,height:ch-1,fill:rgb(c)},
    sv("title",{text:o.lengths[x]+" tokens, depth "+(100*o.depths[y]).toFixed(0)+"%: "+num(v)+(o.items?" ("+o.items[y*nx+x]+" items)":"")})));
   if(cw>=34)svg.append(sv("text",{x:left+cw*(x+0.5),y:top+ch*(y+0.5)+4,"text-anchor":"middle","pointer-events":"none",
     style:"fill:"+inkOn(c)+";font-size:11px",text:(o.centred&&v>0?"+":"")+Number(v.toFixed(Math.abs(v)<10?2:0))}))}}
 const every=Math.ceil(40/cw);
 for(let x=0;x<nx;x+=every)svg.append(sv("text",{x:left+cw*(x+0.5),y:top+ch*ny+15,"text-anchor":"middle",text:o.lengths[x]}));
 const bar=Math.min(150,w-left-110),by=top+ch*ny+34;
 svg.append(sv("text",{x:left,y:by-4,text:"tokens →"}));
 for(let i=0;i<30;i++){const t=i/29;
  svg.append(sv("rect",{x:left+bar*i/30+50,y:by,width:bar/30+0.5,height:9,fill:rgb(o.centred?diverging(2*t-1):sequential(t))}))}
 svg.append(sv("text",{x:left+46,y:by+9,"text-anchor":"end",text:tick(o.centred?-o.reach:o.low)}),
  sv("text",{x:left+bar+54,y:by+9,text:(o.centred?"+":"")+tick(o.centred?o.reach:o.high)}));
 host.append(svg)}

// columns: [{name,key(row),text(row) or node(row),right,wide}]
function dataTable(host,rows,columns,first){
 let sorted=rows.slice(),limit=first||100;
 const body=el("tbody"),more=el("button",{type:"button",text:"",onclick:()=>{limit=Infinity;fill()}});
 const fill=()=>{
  body.replaceChildren(...sorted.slice(0,limit).map(r=>el("tr",{},...columns.map(c=>{
   const cell=el("td",{class:(c.right?"r":"")+(c.wide?" w":"")});
   cell.append(c.node?c.node(r):c.text?c.text(r):String(c.key(r)));return cell}))));
  more.style.display=sorted.length>limit?"":"none";more.textContent="show all "+sorted.length+" rows"};
 const heads=columns.map(c=>{
  const th=el("th",{class:c.right?"r":null,"data-sort":c.key?"1":null,title:c.title,text:c.name});
  if(c.key)th.addEventListener("click",()=>{
   const down=th.dataset.down!=="1";heads.forEach(h=>delete h.dataset.down);th.dataset.down=down?"1":"0";
   const value=r=>{const v=c.key(r);return v===null||v===undefined?-Infinity:v};
   sorted.sort((p,q)=>{const a=value(p),b=value(q),d=typeof a==="number"&&typeof b==="number"?(a===b?0:a-b):String(a).localeCompare(String(b));return down?-d:d});
   fill()});
  return th});
 fill();
 host.append(el("div",{class:"scroll tall"},el("table",{},el("thead",{},el("tr",{},...heads)),body)),more)}
